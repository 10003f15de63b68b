"""The admin protocol: typed requests and replies between a node and what manages or reads it in bulk.

`protocol.py` is the vocabulary, `node.py` what sessions see of the node, `server.py` one session (without I/O),
`group_calls.py` what it does for reader groups, `client.py` a blocking client (Spark, command line). It is spoken on the AMQP port after a protocol
header of its own, so one address and one login serve both. May import: wire, routing, store, queues, broker.
"""
