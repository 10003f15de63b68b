"""Queues: where messages wait, which consumers and readers take them, and when they leave.

`queue.py` joins messages with consumers and the journal; `backing/variable_queue.py` keeps the
waiting messages (q1 q2 delta q3 q4); `entry.py` says what a queue knows of a consumer. No sockets,
no clock: the time is an argument. May import: wire, routing, store. Start with `queue.py`.

The rooms, from below: memory; backing, remote; readers, mirror. The files beside them say what a
queue is to its vhost.
"""
