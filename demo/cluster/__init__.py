"""`make demo-cluster`: etcd and three nodes, clients on all of them, a node killed and back.

`story.py` tells it; `nodes.py` has the processes.
"""
