"""Writes a page of figures and charts on the contents of a store. Start with `job.py`."""
