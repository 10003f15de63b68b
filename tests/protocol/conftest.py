"""Protocol tests run against the engine in memory and against a broker process.
`tests/support/brokers/fixtures.py` has both; `python -m tests.support.against_rabbitmq` runs the
tests against RabbitMQ.
"""

from tests.support.brokers.fixtures import amqp, broker_uri

__all__ = ["amqp", "broker_uri"]
