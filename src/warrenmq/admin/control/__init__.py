"""The control calls of a session: what `warrenctl` asks for, on this node or on others.

`calls.py` says who may ask for what, and leads to the file of each subject. May import: protocol,
definitions, listings, events. Start with `calls.py`.
"""
