"""Routing: the exchanges and bindings of a vhost, and the queues that a message goes to.

See AMQP 0-9-1 section 3.1. `router.py` routes for one vhost; each exchange type is a file of its
own (`direct.py`, `fanout.py`, `topic.py` over a trie and an automaton, `headers.py`,
`consistent_hash.py`, `random_exchange.py`, `delayed.py` around one of these). The caller checks
permissions and missing names. May import: wire. Start with `router.py`.
"""
