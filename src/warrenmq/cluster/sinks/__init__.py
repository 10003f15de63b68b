"""Staged messages of sinks on the way to queues of other nodes.

May import: links. Start with `carrier.py`, which sends; `receiver.py` takes.
"""
