"""Several nodes as one broker: shared definitions, links between nodes, queues of other nodes.

It imports from `broker` and below. `metadata/` is the place where the nodes decide (etcd, or for
those of one machine `key_store/`), `links/` connects each pair of nodes. Start reading at
`decisions/follower.py`: what every node does with a decision.

The rooms, from below: metadata, links, ring, remote; groups, sinks; decisions, membership; mirrors.
The files beside them join these parts to a node.
"""
