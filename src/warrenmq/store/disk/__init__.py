"""The store's shell: the only part with files, syncs and threads. Start with `flusher.py`."""
