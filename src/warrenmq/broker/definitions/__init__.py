"""What outlives a restart besides messages: vhosts, users, exchanges, queues, bindings, and who may use them.

`metadata.py` is the interface, `metadata_sqlite.py` keeps the definitions of a node that runs alone.
"""
