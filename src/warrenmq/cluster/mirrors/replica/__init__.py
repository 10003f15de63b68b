"""One mirrored queue on one node: its master, a mirror, or not in the group now.

May import: sync, and `records.py` and `silences.py` of the mirrors. Start with `replica.py`.
"""
