"""Backups of stores as Parquet files, and their restore to a data directory or a running broker.

Start with `job.py`, which makes a backup; `restore_job.py` and `restore_live_job.py` read it.
"""
