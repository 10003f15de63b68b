"""The membership of a node: how it starts in its cluster, joins, leaves and is forgotten.

May import: metadata, groups, links. Start with `joining.py`.
"""
