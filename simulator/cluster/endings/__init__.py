"""The end of a history of a cluster: it is at rest, and loses a mirrored queue once more.

May import: a world with its clients, spark and recording. Start with `rest.py`.
"""
