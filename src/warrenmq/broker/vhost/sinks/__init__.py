"""Sinks: batches of messages that Spark stages, and that are published exactly once.

May import: handovers, remote, and the queues of the vhost. Start with `staging.py`.
"""
