"""Publishes to another broker with confirms: each message at least once, many in one socket write.

A message that was sent stays in memory until it is confirmed. After a lost connection the
unconfirmed messages are sent again over a new one, for up to `retryTimeoutMs` without any confirm.
A message that the broker nacks (a queue that is full and rejects publishes) is sent again after a
pause, for the same time. Messages therefore keep the order of the rows only while nothing fails.
"""

import logging
import os
import time
from collections import deque
from typing import TYPE_CHECKING, Final

from librt.strings import BytesWriter

from warrenmq.admin.client.client import NodeAddress
from warrenmq.spark.amqp.connection import (
    CHANNEL,
    AmqpConnection,
    AmqpLostError,
    AmqpRefusedError,
    Returned,
)
from warrenmq.spark.amqp.options import AmqpSinkOptions
from warrenmq.spark.retry import Retry, SourceError
from warrenmq.vocabulary.names import name_text
from warrenmq.wire.encode import write_content, write_method_frame
from warrenmq.wire.methods import BasicAck, BasicNack, BasicPublish, ConfirmSelect, ConfirmSelectOk

if TYPE_CHECKING:
    from warrenmq.offline.part_writer import MessageColumns

# Most messages that are sent and not confirmed.
WINDOW_MESSAGES: Final = 10_000
# Most bytes of bodies and properties that are sent and not confirmed.
WINDOW_BYTES: Final = 16 * 1024 * 1024
# Bytes of one write to the socket; more when a message is larger.
WRITE_BYTES: Final = 256 * 1024
# Longest wait for the socket before time-outs are checked.
_TICK_S: Final = 1.0

_log = logging.getLogger("warren.spark")

# (address, properties, body); the address has exchange and routing key as a message stores them.
Message = tuple[bytes, bytes, bytes]


class ConfirmedPublisher:
    """Publishes over a connection that the first message opens; `drop` it after an exception."""

    def __init__(self, options: AmqpSinkOptions) -> None:
        self._options = options
        self._address = NodeAddress(options.uri)
        self._connection: AmqpConnection | None = None
        self._waiting: deque[Message] = deque()
        # Messages that are sent and not confirmed, by publish number, ascending.
        self._unconfirmed: dict[int, Message] = {}
        self._unconfirmed_bytes = 0
        # Publish number of the last message sent on this connection; the first one is 1.
        self._published = 0
        # All publish numbers below this one are confirmed or nacked.
        self._settled = 1
        # Messages that the broker nacked, to be sent again.
        self._refused: list[Message] = []
        # Frames of basic.publish, by address.
        self._methods: dict[bytes, bytes] = {}
        # Only a confirm ends the outage: a connection that opens may still take no publish.
        self._retry = Retry(self._address.where, options.retry_timeout_ms / 1000, "retryTimeoutMs")
        self._progress_s = 0.0
        self._was_blocked = False

    def publish(self, messages: "MessageColumns") -> None:
        """Send the messages; on return all but the last window of them are confirmed.

        Raises SourceError when the broker does not take them.
        """
        self._waiting.extend(
            zip(messages.addresses, messages.properties, messages.bodies, strict=True)
        )
        self._drive(wants_all=False)

    def finish(self) -> None:
        """Wait until every message is confirmed; SourceError when the broker does not take them."""
        self._drive(wants_all=True)

    def drop(self) -> None:
        """Drop the connection and all messages that wait or are unconfirmed."""
        if self._connection is not None:
            self._connection.drop()
            self._connection = None
        self._waiting.clear()
        self._refused.clear()
        self._forget_numbers()
        self._retry.succeeded()

    def _drive(self, wants_all: bool) -> None:
        self._progress_s = time.monotonic()
        while self._waiting or self._refused or (wants_all and self._unconfirmed):
            try:
                if self._connection is None:
                    self._retry.attempt()
                    self._connection = self._connect()
                    self._retry.connected()
                self._step(self._connection)
            except AmqpLostError as error:
                if self._connection is not None:
                    self._connection.drop()
                    self._connection = None
                # Send the unconfirmed messages first, in their order: at worst they arrive twice.
                self._waiting.extendleft(reversed(self._unconfirmed.values()))
                self._send_refused_again()
                self._forget_numbers()
                self._retry.failed(error)
            except AmqpRefusedError as error:
                self._retry.failed(error)

    def _connect(self) -> AmqpConnection:
        # No heartbeats: no code of this class runs while Spark computes the next rows.
        connection = AmqpConnection(self._address, "Spark sink", 0)
        try:
            connection.call(ConfirmSelect(), ConfirmSelectOk)
        except BaseException:
            connection.drop()
            raise
        self._progress_s = time.monotonic()
        return connection

    def _step(self, connection: AmqpConnection) -> None:
        """Send as much as the window allows and handle the events that arrived; wait when idle."""
        has_room = (
            len(self._unconfirmed) < WINDOW_MESSAGES and self._unconfirmed_bytes < WINDOW_BYTES
        )
        sends = bool(self._waiting) and has_room and not connection.is_blocked
        if sends:
            self._send(connection)
        if not connection.wait(0 if sends else _TICK_S):
            if not sends:
                self._check_progress(connection)
            return
        while (event := connection.next_event()) is not None:
            if isinstance(event, (BasicAck, BasicNack)):
                self._settle(event)
            elif isinstance(event, Returned):
                method = event.method
                raise SourceError(
                    f"no queue takes what is published to exchange '{name_text(method.exchange)}' with routing key "
                    f"'{name_text(method.routing_key)}' ({name_text(method.reply_text)}); with mandatory=ignore it is dropped"
                )
        if self._refused:
            self._send_refused_again()
            self._retry.wait_because(
                "the broker refuses messages with basic.nack: a queue is full, or failed"
            )

    def _send(self, connection: AmqpConnection) -> None:
        out = BytesWriter()
        while self._waiting and len(out) < WRITE_BYTES:
            message = self._waiting.popleft()
            address, properties, body = message
            out.write(self._method(address))
            write_content(out, CHANNEL, properties, body, connection.frame_max)
            self._published += 1
            self._unconfirmed[self._published] = message
            self._unconfirmed_bytes += len(properties) + len(body)
        connection.send(out.getvalue())

    def _method(self, address: bytes) -> bytes:
        """The frame of basic.publish for an address."""
        frame = self._methods.get(address)
        if frame is None:
            if len(self._methods) >= WINDOW_MESSAGES:
                self._methods.clear()
            end = 1 + address[0]
            out = BytesWriter()
            publish = BasicPublish(
                address[1:end], address[end + 1 :], mandatory=self._options.is_mandatory
            )
            write_method_frame(out, CHANNEL, publish)
            frame = self._methods[address] = out.getvalue()
        return frame

    def _settle(self, event: BasicAck | BasicNack) -> None:
        last = event.delivery_tag
        first = self._settled if event.multiple else last
        for number in range(first, last + 1):
            message = self._unconfirmed.pop(number, None)
            if message is None:
                continue
            self._unconfirmed_bytes -= len(message[1]) + len(message[2])
            if isinstance(event, BasicNack):
                self._refused.append(message)
        if event.multiple:
            self._settled = last + 1
        self._progress_s = time.monotonic()
        if isinstance(event, BasicAck):
            self._retry.succeeded()

    def _send_refused_again(self) -> None:
        self._waiting.extendleft(reversed(self._refused))
        self._refused.clear()

    def _check_progress(self, connection: AmqpConnection) -> None:
        """Raise SourceError when the broker has confirmed nothing for too long.

        A broker that blocks publishers may be silent for any time.
        """
        now = time.monotonic()
        if connection.is_blocked or self._was_blocked:
            if not self._was_blocked:
                _log.warning("%s has blocked publishers: waiting", self._address.where)
            # The time-out starts again when the broker unblocks publishers.
            self._progress_s = now
        elif self._unconfirmed and now - self._progress_s > self._options.confirm_timeout_ms / 1000:
            raise SourceError(
                f"{self._address.where} has confirmed nothing for "
                f"{self._options.confirm_timeout_ms / 1000:g} s (confirmTimeoutMs)"
            )
        self._was_blocked = connection.is_blocked

    def _forget_numbers(self) -> None:
        self._unconfirmed = {}
        self._unconfirmed_bytes = 0
        self._published = 0
        self._settled = 1


# Publishers by process and options. Spark forks task workers and reuses them: a publisher serves
# many tasks of one process, and a fork must not use its parent's connection.
_publishers: dict[tuple[int, AmqpSinkOptions], ConfirmedPublisher] = {}


def publisher_for(options: AmqpSinkOptions) -> ConfirmedPublisher:
    """This process's publisher with these options."""
    key = (os.getpid(), options)
    publisher = _publishers.get(key)
    if publisher is None:
        publisher = _publishers[key] = ConfirmedPublisher(options)
    return publisher
