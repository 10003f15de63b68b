"""A vhost: its exchanges and queues, its store, and the sinks that Spark writes to (`staging.py`).

Start with `vhost.py`. What a node offers its vhosts and connections is in `node_services.py`.
"""
