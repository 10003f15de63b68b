"""The simulator's node: the real broker on a simulated disk. Start with `node.py`."""
