"""Copies of a queue on other nodes: what its master tells them, and what they make of it.

May import: backing, remote (for records in frames), and the queue itself. Start with
`ring_feed.py`, the master's side, and `backing.py`, the copy's.
"""
