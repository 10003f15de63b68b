"""The log of mirrored queues: their groups, their synchronisations, and many events in one line.

Imports nothing else of the mirrors. Start with `mirror_log.py`.
"""
