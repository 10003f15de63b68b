"""A page on what a store holds. Start with `job.py`."""
