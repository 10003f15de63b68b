"""The node: what turns sockets, clocks and signals into events for the engine. Start reading in node.py.

Listeners, connections, heartbeats, flow control, configuration, start and stop. Thin by intent: decisions about messages
are made in broker and below, which neither block nor look at a clock. May import everything but cli, spark, management.
"""
