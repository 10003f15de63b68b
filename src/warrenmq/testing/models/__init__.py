"""What a broker may and may not have done, said without its code. Start with `oracle.py`."""
