"""Streams, sinks and consumers that read and write mirrored queues of a simulated cluster.

May import: a world with its clients and steps, and recording. Start with `spark_steps.py`.
"""
