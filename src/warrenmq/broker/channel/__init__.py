"""A channel: publishes in, deliveries and confirms out.

Start with `channel.py`, the hot path; `methods.py` and `topology.py` have the other methods. A channel knows its connection
as `client_side.py`.
"""
