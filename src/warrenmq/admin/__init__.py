"""The admin protocol: typed requests and replies between a node and the programs that use it.

`protocol/requests.py` is the vocabulary, `node.py` the node as sessions see it, `server.py` one
session (without I/O), `readers/calls.py` its calls for reader groups, and `client/client.py` a
blocking client (Spark, command line). The AMQP port also speaks this protocol, after a protocol
header of its own, so one address and one login serve both. May import: wire, routing, store,
queues, broker.

The rooms, from below: protocol; client, definitions; listings; events; control; readers. The files
beside them are a node, as sessions see it, and one session.
"""
