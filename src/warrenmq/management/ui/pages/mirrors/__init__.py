"""Mirrored queues: who has copies, how far they are, and what is lost without a node."""
