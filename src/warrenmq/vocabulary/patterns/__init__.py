"""Patterns that come from outside: rights, policies, the rule for passwords, names of queues.

Their names come from clients, and searches run on the node's loop, so no pattern may take long.
Nothing else in warren gives a pattern from outside to Python's `re`.

`pattern.py`       `Pattern`, with the meaning of RabbitMQ: chooses the engine
`parser.py`        reads PCRE's syntax, with `source.py` and `classes.py`: the tree of `nodes.py`
`octets.py`        sets of octets: what `\\w`, `[:alpha:]` and `\\p{L}` stand for
`linear.py`        the tree in RE2
`program.py`       the tree as a program of `machine.py`, for what RE2 cannot express
`name_pattern.py`  `NamePattern`, for whole names of queues, in RE2's own syntax

Decision 022 says why.
"""
