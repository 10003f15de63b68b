"""The job `metrics`: keeps windowed aggregates of a broker's figures. Start with `job.py`."""
