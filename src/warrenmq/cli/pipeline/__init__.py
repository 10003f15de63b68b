"""`warren pipeline JOB`: jobs on queues, stores and archives.

`app.py` has what all commands share, and the Typer application; every other module but `words.py`
adds a family of commands to it when it is imported. `words.py` turns a job that a node is asked for
into a command line.
"""
