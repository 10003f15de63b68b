"""The log of a node: where it goes, in which form, and when a file ends.

May import: config. Start with `output.py`.
"""
