"""A store's files as tables of Arrow: bytes in, record batches out, without Spark and without a node.

`scan.py` walks over records, `planning.py` says what there is to read, `reading.py` reads a part of it.
`spool.py` reads what Spark's driver has taken from other brokers. `rabbitmq/` does both for the files of RabbitMQ. `messages_to_write.py` goes the other way: batches for a new store.
"""
