"""Synchronisation: a mirror gets the messages that it misses from its master.

May import `records.py` of the mirrors. Start with `source.py`, the master's side; `target.py` is
the mirror's.
"""
