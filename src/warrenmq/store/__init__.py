"""The store: whatever was confirmed is on disk and comes back after any crash.

One journal per vhost orders everything: publishes with their content, acks, queue states.
`journal/journal.py` decides what a batch contains, `disk/flusher.py` makes the batch durable,
`recovery.py` reads it back. All modules outside `disk/` are deterministic logic over bytes: no
clock, no file, no thread. May import: wire. Start with `journal/journal.py`.

The rooms, from below: model; records, jobs; contents; journal; index; upkeep; disk. The files
beside them concern a whole vhost.
"""
