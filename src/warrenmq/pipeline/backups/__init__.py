"""Backups of stores as Parquet files, and the way back: into a new data directory or into a running broker.

Start with `job.py`; `restore_job.py` and `restore_live_job.py` read what it made.
"""
