"""Copies all messages that come to a queue into files, each exactly once. Start with `job.py`."""
