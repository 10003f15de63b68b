"""Publishes messages of an archive or a backup again, in order. Start with `job.py`."""
