"""The groups of mirrored queues: who has a copy, who is in sync, who is master.

It imports from `cluster/ring`, `broker` and below. Start reading at `group.py`, the record that the
cluster's store has of each mirrored queue. `transitions.py` has every change of it,
`mirror_policy.py` and `mirror_placement.py` say which nodes should have copies.
"""
