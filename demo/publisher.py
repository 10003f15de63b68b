"""A publisher with confirms through pika, which knows the state of each message at a kill.

A message is confirmed when the broker's ack for it has arrived; every other sent message is in
flight, and may or may not be on the broker's disk. The publisher keeps a window of messages in
flight. pika's blocking connection waits for each confirm, so the publisher uses a SelectConnection.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pika

from demo.checks import DemoError
from demo.corpus import Corpus, SourceFile

EXCHANGE = "stdlib"
IN_FLIGHT_MAX = 64
IN_FLIGHT_BYTES_MAX = 8 * 1024 * 1024
# Delay between the confirm of half of the messages and the kill, which then hits the next messages.
KILL_DELAY_S = 0.002
STALL_TIMEOUT_S = 60.0


@dataclass(frozen=True)
class Published:
    """Confirmed and unconfirmed messages of a run, each in the order of publishing."""

    confirmed: list[SourceFile]
    in_flight: list[SourceFile]


def declare(parameters: pika.ConnectionParameters, corpus: Corpus) -> None:
    """Declare durable queues, bound to a durable direct exchange by file extension."""
    connection = pika.BlockingConnection(parameters)
    channel = connection.channel()
    channel.exchange_declare(EXCHANGE, "direct", durable=True)
    for queue in corpus.plan.queues:
        channel.queue_declare(queue, durable=True)
    for kind, queue in corpus.plan.queue_of_kind.items():
        channel.queue_bind(queue, EXCHANGE, routing_key=kind)
    connection.close()


class Publisher:
    """Publishes files in order, once each; after `kill_at` confirms it calls `kill`.

    After the kill it continues until the connection breaks.
    """

    def __init__(
        self,
        files: list[SourceFile],
        advance: Callable[[int], None],
        kill_at: int | None = None,
        kill: Callable[[], None] | None = None,
    ) -> None:
        self._files = files
        self._advance = advance
        self._kill_at = kill_at
        self._kill = kill
        self._is_killed = False
        # A window below the number of files, so that the kill finds some published and some not.
        self._in_flight_max = min(IN_FLIGHT_MAX, 1 + len(files) // 8)
        self._channel: Any = None
        self._next = 0
        self._in_flight: dict[int, SourceFile] = {}
        self._in_flight_bytes = 0
        self._confirmed: list[SourceFile] = []
        self._confirmed_at_last_look = -1

    def run(self, parameters: pika.ConnectionParameters) -> Published:
        """Publish until all files are confirmed, or the broker is killed.

        DemoError when the broker refuses a message, or confirms none for STALL_TIMEOUT_S.
        """
        if not self._files:
            return Published([], [])
        connection = pika.SelectConnection(
            parameters,
            on_open_callback=self._on_open,
            on_open_error_callback=self._on_open_error,
            on_close_callback=self._on_close,
        )
        connection.ioloop.call_later(STALL_TIMEOUT_S, self._look_for_stall)
        self._connection = connection
        connection.ioloop.start()
        return Published(
            sorted(self._confirmed, key=lambda file: file.number),
            [*self._in_flight.values()],
        )

    # -- what pika calls ---------------------------------------------------------------------------

    def _on_open(self, connection: Any) -> None:
        connection.channel(on_open_callback=self._on_channel_open)

    def _on_open_error(self, _connection: Any, error: BaseException) -> None:
        raise DemoError(f"no connection to the broker: {error!r}")

    def _on_channel_open(self, channel: Any) -> None:
        self._channel = channel
        channel.add_on_return_callback(self._on_return)
        channel.add_on_close_callback(self._on_channel_close)
        channel.confirm_delivery(self._on_confirm, callback=lambda _frame: self._fill())

    def _on_channel_close(self, _channel: Any, reason: BaseException) -> None:
        if isinstance(reason, pika.exceptions.ChannelClosedByBroker):
            raise DemoError(f"the broker closed the channel: {reason.reply_text}")

    def _on_return(self, _channel: Any, method: Any, properties: Any, _body: bytes) -> None:
        raise DemoError(f"message {properties.message_id} came back: {method.reply_text}")

    def _on_confirm(self, frame: Any) -> None:
        method = frame.method
        if not isinstance(method, pika.spec.Basic.Ack):
            raise DemoError("the broker could not store a message: it sent basic.nack")
        tag = method.delivery_tag
        tags = [tag]
        if method.multiple:
            # A multiple ack confirms all tags up to its own. The table is in the order of the tags,
            # so the oldest come first.
            tags = [known for known in self._in_flight if known <= tag]
        for known in tags:
            file = self._in_flight.pop(known)
            self._in_flight_bytes -= file.size
            self._confirmed.append(file)
        self._advance(len(tags))
        self._fill()
        if len(self._confirmed) == len(self._files):
            self._connection.close()
        elif self._kill_at is not None and len(self._confirmed) >= self._kill_at:
            self._kill_at = None
            self._connection.ioloop.call_later(KILL_DELAY_S, self._kill_broker)

    def _on_close(self, connection: Any, reason: BaseException) -> None:
        connection.ioloop.stop()
        if len(self._confirmed) < len(self._files) and not self._is_killed:
            raise DemoError(f"the connection to the broker broke: {reason!r}")

    # -- parts -------------------------------------------------------------------------------------

    def _fill(self) -> None:
        while (
            self._next < len(self._files)
            and len(self._in_flight) < self._in_flight_max
            and self._in_flight_bytes < IN_FLIGHT_BYTES_MAX
        ):
            file = self._files[self._next]
            self._next += 1
            # The channel counts publishes from 1, and confirms name these numbers.
            self._in_flight[self._next] = file
            self._in_flight_bytes += file.size
            self._channel.basic_publish(
                EXCHANGE, file.kind, file.path.read_bytes(), _properties(file), mandatory=True
            )

    def _kill_broker(self) -> None:
        self._is_killed = True
        assert self._kill is not None
        self._kill()

    def _look_for_stall(self) -> None:
        if len(self._confirmed) == self._confirmed_at_last_look:
            raise DemoError(f"the broker has confirmed nothing for {STALL_TIMEOUT_S:.0f} s")
        self._confirmed_at_last_look = len(self._confirmed)
        self._connection.ioloop.call_later(STALL_TIMEOUT_S, self._look_for_stall)


def _properties(file: SourceFile) -> pika.BasicProperties:
    return pika.BasicProperties(
        delivery_mode=pika.DeliveryMode.Persistent,
        message_id=file.message_id,
        type="file",
        headers={"path": file.name, "sha256": file.sha256},
    )
