"""Samples of a node's figures, kept in memory for those who ask for them.

May import: protocol, changes, status. Start with `ring.py`.
"""
