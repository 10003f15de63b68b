"""Queues of other nodes, as the clients of this node use them over a link.

May import what a queue is to its vhost, but no queue of this node. Start with `queue.py`.
"""
