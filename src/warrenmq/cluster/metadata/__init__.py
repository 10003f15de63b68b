"""The definitions of a cluster on etcd v3, which all its nodes share.

`etcd_metadata.py` is the store, with the contract of a node's own (`Metadata`) and what a cluster
needs beyond it: conditions, revisions, watches. `keys.py` says how definitions become keys and
values, `operations.py` has etcd's own words, and `gateway.py` is the client.
"""
