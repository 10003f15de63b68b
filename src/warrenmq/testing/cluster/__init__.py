"""A cluster of simulated nodes: a model of etcd, and links in memory.

May import everything below `testing/` and the packages below it. Start with `etcd_model.py`.
"""
