"""Readers beside consumers: groups that reserve ranges of a queue and can read them again.

May import: backing, memory, and the queue itself. Start with `group.py`.
"""
