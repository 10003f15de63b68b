"""Several nodes of one machine as one broker: `warren server --workers N`.

`supervisor.py` starts, watches and stops the processes of the nodes, the *workers*, and serves the
key-value store with the definitions that they share. `worker.py` is the other side: what is
different about a node that is a worker. `directories.py` has the place of each worker's data.
"""
