"""The figures of a node's objects that have changed since a session was last told of them.

`tick.py` compares them for one session, `walks.py` has those of each kind of object. May import:
protocol. Start with `tick.py`.
"""
