"""Queues: where messages wait, who takes them, when they go.

`variable_queue.py` holds the waiting messages (q1 q2 delta q3 q4), `queue.py` joins it with consumers and the
journal, `consumer.py` is what a consumer looks like from here. No sockets, no clock: the time is an argument.
May import: wire, routing, store. Start with `queue.py`.
"""
