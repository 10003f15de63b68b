"""The node: turns sockets, clocks and signals into events for the engine. Start reading in node.py.

Holds listeners, connections, heartbeats, flow control, configuration, start and stop. The package
is thin by intent: broker and the packages below it decide about messages, and they neither block
nor read a clock. May import every package but cli, spark and management.

The rooms, from below: config, resources; listening, log, startup; workers.
"""
