"""The log of a node: where it goes, in which form, when a file ends, and the last entries.

May import: config. Start with `output.py`.
"""
