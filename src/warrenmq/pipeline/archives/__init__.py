"""Copies everything that comes to a queue into files, exactly once. Start with `job.py`."""
