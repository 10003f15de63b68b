"""The internal events of a node, such as `queue.created`, for the sessions that watch them.

May import: protocol, definitions, listings. Start with `stream.py`.
"""
