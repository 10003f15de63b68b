"""Replicas of mirrored queues: a master that replicates, mirrors that follow and take over.

It imports from `cluster/ring`, `cluster/groups`, `queues` and `store`. Nothing here does I/O.

* `records.py`: what replicas send each other
* `replica/in_sync.py`: which copies a confirm waits for
* `replica/mirror_copy.py`: a node's copy of a queue
* `replica/replica.py`: one queue's replica on one node; start reading here
* `place.py`: what stands for the queue in its vhost meanwhile
* `replicas.py`: all queues of a node
"""
