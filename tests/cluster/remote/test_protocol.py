"""The tests of the protocol, by a client of a node that has none of the queues."""

from tests.protocol.test_confirms import *  # noqa: F403  # all of them
from tests.protocol.test_consume import *  # noqa: F403  # all of them
