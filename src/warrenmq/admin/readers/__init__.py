"""The reader group calls of a session, and what must be durable before which answer.

May import: protocol, and the node as sessions see it. Start with `calls.py`.
"""
