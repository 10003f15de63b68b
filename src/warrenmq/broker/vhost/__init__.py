"""A vhost: its exchanges and queues, its store, and the sinks that Spark writes to (`staging.py`).

Start with `vhost.py`. `node_services.py` has the services of a node for its vhosts and connections.
The rooms, from below: remote, handovers, sinks.
"""
