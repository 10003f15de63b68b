"""The start of a node: opens its data directory, its vhosts, and imports what it is told to.

May import: config. Start with `startup.py`.
"""
