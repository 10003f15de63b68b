"""Contents of large messages, by id: their files, references, compaction, and a start.

May import: model, records, jobs. Start with `store.py`.
"""
