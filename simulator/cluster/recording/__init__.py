"""The history of a simulated cluster as its clients see it, and what was promised of each message.

May import: the model of etcd, and the checker. Start with `recording.py`.
"""
