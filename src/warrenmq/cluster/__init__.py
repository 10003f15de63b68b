"""Several nodes as one broker: shared definitions, links between nodes, queues of other nodes.

It imports from `broker` and below. `metadata/` is the place where the nodes decide (etcd), `links/`
connects each pair of nodes. Start reading at `follower.py`: what every node does with a decision.
"""
