"""A workload of confirming publishers and acking consumers that records its history.

`python -m simulator.workload --uri A --uri B --seconds N --queues M --history FILE` runs it
against any AMQP 0-9-1 broker; `checker/` judges the history. Start with `workload.py`. Clients
reconnect by themselves, to the next of several nodes. Every message has an id of its own, is sent
once, and its outcome stays unknown if the connection breaks before the answer.

Needs pika, which the extra `topology` brings.
"""
