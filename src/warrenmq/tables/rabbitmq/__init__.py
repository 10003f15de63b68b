"""The data directory of a RabbitMQ 3.x node that does not run, as batches of Arrow: what an import starts from.

`import_plan.plan` looks at indexes and at the frames of the message store and says which messages there are and where;
`reading.read` reads a part of them, in the order of their queue. The directory is only read. Nothing in it is trusted:
a length is compared with what is there before it is used, and what cannot be read becomes a `Damage`, not an exception.

| module | what |
|---|---|
| `external_term.py` | Erlang's external term format; compiled |
| `stored_message.py`, `property_terms.py` | a message as RabbitMQ stores it |
| `queue_index.py` | a queue's positions in segments and journal (classic queues, version 1) |
| `slot_index.py` | the same of version 2 |
| `content_files.py` | where the message store has which message |
| `definitions.py` | an export of definitions |

Messages of quorum queues and streams are kept elsewhere and are not read.
"""
