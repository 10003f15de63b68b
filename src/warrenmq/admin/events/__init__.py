"""The internal events of a node, such as `queue.created`, for sessions and event exchanges.

May import: protocol, definitions, listings. Start with `stream.py`.
"""
