"""Sinks of a cluster: their rows, who publishes a batch, and its messages on the way to queues.

May import: decision_store, definitions_copy, links. Start with `sinks.py`, which decides what a
node does; `carrier.py` sends messages to other nodes, and `receiver.py` takes them.
"""
