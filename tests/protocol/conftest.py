"""Protocol tests run against the engine in memory and against a broker process; see `tests/support/brokers/fixtures.py`.

`python -m tests.support.against_rabbitmq` runs them against RabbitMQ.
"""

from tests.support.brokers.fixtures import amqp, broker_uri

__all__ = ["amqp", "broker_uri"]
