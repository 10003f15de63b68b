"""warren: an AMQP 0-9-1 message broker that keeps what it confirms and opens its queues to Spark.

Start reading at ARCHITECTURE.md. The packages are layered (wire, routing, store, queues, broker,
server), and a module imports only from layers below its own.
"""

__version__ = "1.0.0rc1"
