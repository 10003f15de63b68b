"""A small key-value store with etcd's semantics, for the nodes of one machine.

`store.py` has the keys, their history and the leases in memory, `disk.py` keeps them in a file,
`requests.py` speaks the part of etcd's JSON interface that `metadata/` uses, and `server.py` serves
it on loopback. Nodes use it through `EtcdGateway`, as they use etcd.
"""
