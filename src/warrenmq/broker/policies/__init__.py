"""Policies and operator policies: what applies to the queues and exchanges of a vhost beside their
declared arguments.

`keys.py` knows the keys of a definition, `policy.py` one policy and which of several wins,
`effective.py` what arguments and policies give together, `vhost_policies.py` keeps the queues and
exchanges of a vhost up to date.
"""
