"""Programs outside the node that speak the admin protocol: how they find a node, and ask it.

May import: protocol. Start with `client.py`.
"""
