"""Streaming reads: messages taken exactly once into Spark's checkpoint, through a reader group.

May import: the link to the broker, options, and what batch reads share. Start with `reader.py`.
"""
