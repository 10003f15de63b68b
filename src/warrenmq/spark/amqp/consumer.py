"""The thread that fills a spool from a queue of another broker: consumes, stores, syncs, then acks.

The thread runs in the query's driver process and answers heartbeats whatever Spark is doing. It
reconnects after a lost connection, for up to `retryTimeoutMs`. Messages that were received and not
stored are dropped, because the broker delivers them again. Messages that were stored and not acked
are delivered again too, flagged as redelivered: `deduplicate` drops these by their message-id.
"""

import contextlib
import logging
import threading
import time
from collections import deque
from typing import Final

from warrenmq.admin.client.client import NodeAddress
from warrenmq.spark.amqp.connection import AmqpConnection, AmqpLostError, AmqpRefusedError, Delivery
from warrenmq.spark.amqp.options import AmqpSourceOptions
from warrenmq.spark.amqp.spool import Spool
from warrenmq.spark.retry import PAUSE_FIRST_S, Retry, SourceError
from warrenmq.tables.spool import read_slice
from warrenmq.wire import methods
from warrenmq.wire.errors import AmqpError
from warrenmq.wire.properties import decode_properties

_CONSUMER_TAG: Final = b"warren-spool"
HEARTBEAT_S: Final = 30
# Bytes of messages that are stored and synced together; fewer when the broker has no more to send.
BATCH_BYTES: Final = 4 * 1024 * 1024
# Message-ids that are remembered, as a multiple of `prefetch`. Redelivered messages are among the
# last that were unacked, but several connections may break before they are redelivered.
KNOWN_IDS_PER_PREFETCH: Final = 4
_PAUSE_MAX_S: Final = 5.0
_TICK_S: Final = 0.5
# A queue counts as empty when it says so twice, this many seconds apart, and no delivery arrived in
# between: a delivery may be under way at the first answer.
_EMPTY_PAUSE_S: Final = 0.2

_log = logging.getLogger("warren.spark")


def known_ids(options: AmqpSourceOptions) -> int:
    """How many messages a spool keeps for their message-ids, even when Spark committed them."""
    return 0 if options.deduplicate == "no" else options.prefetch * KNOWN_IDS_PER_PREFETCH


class SpoolConsumer(threading.Thread):
    """Fills `spool` until it is stopped or fails.

    A failure sets `error` and notifies the threads that wait for the spool.
    """

    def __init__(self, options: AmqpSourceOptions, spool: Spool, drains: bool) -> None:
        super().__init__(name="warren-spool", daemon=True)
        self._options = options
        self._spool = spool
        self._address = NodeAddress(options.uri)
        self._queue = options.queue.encode()
        self._is_stopping = threading.Event()
        # Reason of the failure; None while there is none.
        self.error: str | None = None
        # True: the thread ends when it has read the messages that were in the queue at the start.
        self._drains = drains
        # Seq id at which the thread ends; None without `drains`, and until the queue's length is
        # known.
        self.target: int | None = None
        self._known = _KnownIds(known_ids(options), options.deduplicate == "redelivered")
        self._batch: list[Delivery] = []
        self._batch_bytes = 0
        # Delivery tags of the last delivery that arrived, and of the last one that was acked.
        self._last_tag = self._acked_tag = 0
        self._is_consuming = False

    def stop(self) -> None:
        """Stop the thread and wait for its end."""
        self._is_stopping.set()
        if self.is_alive():
            self.join()

    def run(self) -> None:
        """Consume until stopped or done, and reconnect after each lost connection."""
        seconds = self._options.retry_timeout_ms / 1000
        retry = Retry(
            self._address.where,
            seconds,
            "retryTimeoutMs",
            self._is_stopping.wait,
            pause_max_s=_PAUSE_MAX_S,
        )
        try:
            self._known.load(self._spool)
            with retry:
                while not self._is_stopping.is_set() and not self._is_done:
                    self._consume_once(retry)
        except SourceError as error:
            self._fail(str(error))
        except AmqpRefusedError as error:
            self._fail(f"queue '{self._options.queue}': {error}")
        except OSError as error:
            self._fail(f"the spool cannot be written: {error}")
        except Exception as error:
            # Without a report of the error the query would wait for this thread for ever.
            _log.exception("the consumer of queue '%s' failed", self._options.queue)
            self._fail(f"the consumer of queue '{self._options.queue}' failed: {error!r}")

    def _consume_once(self, retry: Retry) -> None:
        """Connect, and consume until the connection is lost or the work is done.

        Pauses after a failure.
        """
        retry.attempt()
        try:
            connection = self._connect()
        except AmqpLostError as error:
            retry.failed(error)
            return
        retry.succeeded()
        try:
            self._consume(connection)
        except AmqpLostError as error:
            _log.warning("queue '%s': %s", self._options.queue, error)
            # Pause, because a broker may accept each connection and close it at once.
            self._is_stopping.wait(PAUSE_FIRST_S)
        finally:
            connection.drop()

    # -- one connection ----------------------------------------------------------------------------

    def _connect(self) -> AmqpConnection:
        connection = AmqpConnection(
            self._address, f"Spark spool of queue {self._options.queue}", HEARTBEAT_S
        )
        try:
            ready = connection.call(
                methods.QueueDeclare(self._queue, passive=True), methods.QueueDeclareOk
            ).message_count
            connection.call(
                methods.BasicQos(prefetch_count=self._options.prefetch), methods.BasicQosOk
            )
        except BaseException:
            connection.drop()
            raise
        if self._drains and self.target is None:
            self._set_target(self._spool.tail + ready)
        self._batch = []
        self._batch_bytes = 0
        self._known.forget_coming()
        self._last_tag = self._acked_tag = 0
        self._is_consuming = False
        return connection

    def _consume(self, connection: AmqpConnection) -> None:
        batch_messages = max(1, self._options.prefetch // 2)
        empty_since_s: float | None = None
        while not self._is_stopping.is_set() and not self._is_done:
            self._begin_or_pause(connection)
            event = connection.next_event()
            if isinstance(event, Delivery):
                self._take(event)
                if len(self._batch) < batch_messages and self._batch_bytes < BATCH_BYTES:
                    continue
            elif isinstance(event, methods.BasicCancel):
                self._store(connection)
                self._fail(
                    f"the broker has cancelled the consumer of queue '{self._options.queue}': the queue was "
                    "deleted, or its node went away"
                )
                self._is_stopping.set()
                return
            elif event is not None or connection.wait(0):
                continue
            if self._last_tag > self._acked_tag:
                self._store(connection)
                empty_since_s = None
                continue
            if self._drains:
                empty_since_s = self._find_end(connection, empty_since_s)
                connection.wait(_EMPTY_PAUSE_S / 2)
            else:
                connection.wait(_TICK_S)
        # Close with the handshake: the broker then requeues unacked messages at once.
        connection.close()

    def _begin_or_pause(self, connection: AmqpConnection) -> None:
        """Start to consume when the spool has room, and cancel the consumer when it is full.

        Without a consumer the broker sends nothing, so no ack can become overdue.
        """
        if self._is_consuming and self._spool.is_full:
            connection.call(methods.BasicCancel(_CONSUMER_TAG), methods.BasicCancelOk)
            self._is_consuming = False
            _log.info("the spool of queue '%s' is full: waiting for Spark", self._options.queue)
        elif not self._is_consuming and not self._spool.is_full:
            connection.call(
                methods.BasicConsume(self._queue, _CONSUMER_TAG), methods.BasicConsumeOk
            )
            self._is_consuming = True

    def _take(self, delivery: Delivery) -> None:
        """Add a delivery to the batch, unless its message is known already."""
        self._last_tag = delivery.method.delivery_tag
        if self._known.takes(delivery):
            self._batch.append(delivery)
            self._batch_bytes += len(delivery.body) + len(delivery.properties)

    def _store(self, connection: AmqpConnection) -> None:
        """Store the batch durably, then ack it to the broker."""
        if self.target is not None and len(self._batch) > self.target - self._spool.tail:
            # Messages behind the target arrived after the run began: leave them to other consumers,
            # or to the next run.
            del self._batch[self.target - self._spool.tail :]
            self._last_tag = self._batch[-1].method.delivery_tag
        if self._batch:
            self._spool.store(self._batch)
            self._known.add(self._batch)
            self._batch = []
            self._batch_bytes = 0
        if self._last_tag > self._acked_tag:
            connection.send_method(methods.BasicAck(self._last_tag, multiple=True))
            self._acked_tag = self._last_tag

    # -- the end of what was there -----------------------------------------------------------------

    @property
    def _is_done(self) -> bool:
        return self.target is not None and self._spool.tail >= self.target

    def _find_end(self, connection: AmqpConnection, empty_since_s: float | None) -> float | None:
        """End the run when the queue is empty; returns since when it has been (monotonic seconds).

        Other consumers may have taken some of the messages that were counted at the start, so the
        target may never be reached.
        """
        if not self._is_consuming:
            return None
        ready = connection.call(
            methods.QueueDeclare(self._queue, passive=True), methods.QueueDeclareOk
        ).message_count
        now = time.monotonic()
        if ready > 0 or connection.has_events:
            # The last deliveries may have arrived before the answer.
            return None
        if empty_since_s is None:
            return now
        if now - empty_since_s >= _EMPTY_PAUSE_S:
            self._set_target(self._spool.tail)
        return empty_since_s

    def _set_target(self, seq: int) -> None:
        with self._spool.changed:
            self.target = seq
            self._spool.changed.notify_all()

    def _fail(self, text: str) -> None:
        with self._spool.changed:
            self.error = text
            self._spool.changed.notify_all()


class _KnownIds:
    """The message-ids of the last `count` messages in the spool; with 0 every message is new."""

    def __init__(self, count: int, only_redelivered: bool) -> None:
        self._count = count
        self._only_redelivered = only_redelivered
        self._order: deque[bytes] = deque()
        self._ids: dict[bytes, int] = {}
        # Message-ids of the batch that is not in the spool yet.
        self._coming: set[bytes] = set()

    def load(self, spool: Spool) -> None:
        """Read the message-ids of the last messages in the spool."""
        if self._count == 0:
            return
        import pyarrow as pa

        schema = pa.schema([("message_id", pa.string())])
        for part in spool.last_slices(self._count):
            for batch in read_slice(part, schema):
                for message_id in batch.column(0).to_pylist():
                    if message_id is not None:
                        self._remember(message_id.encode())

    def takes(self, delivery: Delivery) -> bool:
        """Whether to store the message; False when its id is in the spool or in the batch."""
        message_id = _message_id(delivery.properties) if self._count else None
        if message_id is None:
            return True
        if delivery.method.redelivered or not self._only_redelivered:
            if message_id in self._ids or message_id in self._coming:
                return False
        self._coming.add(message_id)
        return True

    def forget_coming(self) -> None:
        """Forget the ids of a batch that was not stored."""
        self._coming.clear()

    def add(self, deliveries: list[Delivery]) -> None:
        """Remember the ids of `deliveries`, a whole batch that has been stored."""
        self._coming.clear()
        if self._count:
            for delivery in deliveries:
                message_id = _message_id(delivery.properties)
                if message_id is not None:
                    self._remember(message_id)

    def _remember(self, message_id: bytes) -> None:
        self._order.append(message_id)
        self._ids[message_id] = self._ids.get(message_id, 0) + 1
        if len(self._order) > self._count:
            oldest = self._order.popleft()
            self._ids[oldest] -= 1
            if self._ids[oldest] == 0:
                del self._ids[oldest]


def _message_id(properties: bytes) -> bytes | None:
    # A property block that does not decode counts as one without a message-id.
    with contextlib.suppress(AmqpError):
        return decode_properties(properties).message_id
    return None
