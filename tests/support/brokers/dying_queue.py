"""A queue whose messages die, and what x-death says of them, for tests of dead letters."""

from tests.support.brokers.amqp_frames import table
from tests.support.brokers.amqp_peer import ChannelPeer, Message
from tests.support.brokers.fixtures import Amqp
from warrenmq.wire.field_table import decode_table, to_python
from warrenmq.wire.properties import NO_PROPERTIES

FIRST_DEATH = ("x-first-death-reason", "x-first-death-queue", "x-first-death-exchange")


class Dying:
    """A queue with a dead-letter exchange, and a consumer of the dead letters.

    The exchange is a fanout exchange, and the consumer has a channel of its own. Durable queues are
    not exclusive, since warren keeps exclusive ones in memory; `delete` them.
    """

    def __init__(
        self, amqp: Amqp, durable: bool = False, arguments: dict[str, object] | None = None
    ) -> None:
        """Declare them; the names of the arguments are as in `table`."""
        self.channel = amqp.channel()
        self.letters = amqp.channel()
        self.exchange = amqp.name("dlx")
        self.grave = self.letters.declare(amqp.name("grave"), durable, not durable).queue
        self.letters.exchange(self.exchange, b"fanout", auto_delete=True)
        self.letters.bind(self.grave, self.exchange)
        self.letters.consume(self.grave, no_ack=True)
        values: dict[str, object] = {"x__dead__letter__exchange": self.exchange.decode()}
        raw = table(**values, **(arguments or {}))
        self.queue = self.channel.declare(amqp.name(), durable, not durable, arguments=raw).queue
        self.is_durable = durable

    def delete(self) -> None:
        """Delete the queues; those that are not durable belong to their connections."""
        if self.is_durable:
            for queue in (self.queue, self.grave):
                self.channel.delete(queue)

    def publish(self, *bodies: bytes, properties: bytes = NO_PROPERTIES) -> None:
        for body in bodies:
            self.channel.publish(self.queue, body, properties)

    def get_and_reject(self) -> None:
        reject_head(self.channel, self.queue)

    def reject(self, properties: bytes = NO_PROPERTIES) -> Message:
        """Publish a message and reject it; returns its dead letter."""
        self.publish(b"x", properties=properties)
        self.get_and_reject()
        return self.letters.message()

    def has_no_more_letters(self) -> None:
        """Assert that no dead letter is on its way: one made now is the next to come."""
        self.publish(b"the last")
        self.get_and_reject()
        assert self.letters.message().body == b"the last"


def reject_head(channel: ChannelPeer, queue: bytes) -> None:
    channel.reject(channel.get(queue).got.delivery_tag, requeue=False)


def headers_of(message: Message) -> dict[str, object]:
    headers = message.properties.headers
    assert headers is not None
    return to_python(decode_table(headers))


def deaths(message: Message) -> list[dict[str, object]]:
    """The items of x-death, with the fields that a client sees; without the times."""
    found = headers_of(message)["x-death"]
    assert isinstance(found, list)
    for item in found:
        del item["time"]
    return found


def death(
    queue: bytes, reason: str, count: int = 1, exchange: bytes = b"", *keys: bytes
) -> dict[str, object]:
    """An item of x-death without its time; the routing key is the queue's name by default."""
    return {
        "count": count,
        "reason": reason,
        "queue": queue.decode(),
        "exchange": exchange.decode(),
        "routing-keys": [key.decode() for key in keys or (queue,)],
    }
