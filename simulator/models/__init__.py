"""Models of what a broker may and must do, without the broker's code. Start with `oracle.py`."""
