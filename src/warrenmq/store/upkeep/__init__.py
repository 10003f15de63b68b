"""The work that keeps a store small: checkpoints, rewritten segments, compaction; and its backups.

May import every other room. Start with `checkpoints.py`.
"""
