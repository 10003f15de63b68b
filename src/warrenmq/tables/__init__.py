"""The files of a store as Arrow tables: bytes in, record batches out, without Spark or a node.

- `scan.py` walks over the records of a file.
- `planning.py` cuts the messages of a store into partitions; `reading.py` reads a partition.
- `spool.py` reads the messages that Spark's driver has taken from other brokers.
- `rabbitmq/` plans and reads the files of RabbitMQ.
- `messages_to_write.py` turns batches into messages for a new store.
"""
