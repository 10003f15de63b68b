"""The commands about vhosts and what is in them, users, connections, policies and parameters.

May import: formats, and a command as data (`command.py`). Start with `listings.py`.
"""
