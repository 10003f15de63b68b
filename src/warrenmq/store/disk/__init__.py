"""The store's shell: the only part that opens files, syncs them and runs threads. Start with `flusher.py`."""
