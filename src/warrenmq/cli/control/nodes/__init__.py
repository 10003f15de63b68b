"""The commands about nodes and their cluster: status, health checks, mirrors, logs.

May import: formats, objects, and a command as data (`command.py`). Start with `node.py`.
"""
