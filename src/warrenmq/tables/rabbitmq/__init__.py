"""Reads the data directory of a stopped RabbitMQ 3.x node as Arrow batches, for an import.

`import_plan.plan` reads the indexes and the frames of the message store, and finds which messages
exist and where. `reading.read` reads a partition of them, in the order of their queue. The
directory is only read. Nothing in it is trusted: a length is compared with the bytes that exist
before it is used, and an unreadable message becomes a `Damage`, not an exception.

| module | what |
|---|---|
| `external_term.py` | Erlang's external term format; compiled |
| `stored_message.py` | a message as RabbitMQ stores it |
| `queue_index.py` | a queue's positions in segments and journal (classic queues, version 1) |
| `slot_index.py` | the same of version 2 |
| `content_files.py` | where the message store has which message |
| `definitions.py` | an export of definitions |

Messages of quorum queues and streams are stored in other directories and are not read.
"""
