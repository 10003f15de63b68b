"""Routing: which queues a message goes to, and what exchanges and bindings a vhost has (AMQP 0-9-1 section 3.1).

`router.py` is the whole of it for one vhost; each exchange type is a file of its own (`direct.py`, `fanout.py`,
`topic.py` over a trie and an automaton, `headers.py`). Permissions and missing names are the caller's. May import: wire.
Start with `router.py`.
"""
