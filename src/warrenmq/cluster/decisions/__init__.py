"""Decisions of the cluster: how they are proposed, and how each node puts them in force.

May import: metadata, groups. Start with `follower.py`, which every node runs; `decisions.py`
proposes.
"""
