"""Other nodes of a cluster, as a vhost sees them: their sessions, and copies on the way to them.

Imports nothing else of a vhost. Start with `copies.py`.
"""
