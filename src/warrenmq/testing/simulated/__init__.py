"""The node of the simulator: the real broker on a simulated file system, with simulated clients. Start with `node.py`."""
