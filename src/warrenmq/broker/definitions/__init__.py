"""The definitions that survive a restart: vhosts, users, permissions, exchanges, queues, bindings.

`metadata.py` is the interface, and `kinds.py` describes each kind of definitions for all stores;
`metadata_sqlite.py` stores the definitions of a single node.
`access.py` has the users of a running node and what they may do.
"""
