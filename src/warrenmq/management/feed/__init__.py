"""The figures of all nodes as they change, for those who keep them.

May import: the client of the admin protocol. Start with `feed.py`.
"""
