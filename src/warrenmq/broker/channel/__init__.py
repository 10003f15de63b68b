"""A channel: publishes in, deliveries and confirms out.

Start with `channel.py`, the hot path; `methods.py` and `topology.py` handle the other methods. A
channel knows its connection only through the interface in `channel_host.py`.
"""
