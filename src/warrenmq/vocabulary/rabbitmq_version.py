"""The version of RabbitMQ whose behaviour warren offers.

Programs decide by this version what a broker can do, so it is the answer wherever RabbitMQ's
version is asked for; warren's own version stands beside it.
"""

from typing import Final

RABBITMQ_VERSION: Final = "3.10.8"
