"""The server properties in connection.start.

Clients act on these properties: kombu and Celery use a channel-wide prefetch only for product
`RabbitMQ` from version 3.3 on, others parse the version as three numbers. So product and version
name the behaviour that warren offers, RabbitMQ 3.10.8; `platform` and `information` name warren.
"""

from warrenmq import __version__
from warrenmq.vocabulary.rabbitmq_version import RABBITMQ_VERSION
from warrenmq.wire.field_table import encode_table, fields_from_python

CAPABILITIES = (
    "publisher_confirms",
    "exchange_exchange_bindings",
    "basic.nack",
    "consumer_cancel_notify",
    "connection.blocked",
    "consumer_priorities",
    "authentication_failure_close",
    "per_consumer_qos",
    "direct_reply_to",
)


def server_properties(cluster_name: str) -> bytes:
    """The body of the server-properties table."""
    capabilities: dict[str, object] = dict.fromkeys(CAPABILITIES, True)
    properties: dict[str, object] = {
        "capabilities": capabilities,
        "cluster_name": cluster_name,
        "copyright": "Copyright the warren authors",
        "information": "Licensed under the Apache License 2.0. warren speaks AMQP 0-9-1 as RabbitMQ 3.10 does.",
        "platform": f"Python, warren {__version__}",
        "product": "RabbitMQ",
        "version": RABBITMQ_VERSION,
    }
    return encode_table(fields_from_python(properties))
