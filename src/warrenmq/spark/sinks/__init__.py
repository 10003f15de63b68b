"""Writes: rows become messages, and each batch is published exactly once.

May import: the link to the broker, options and columns. Start with `sink.py`.
"""
