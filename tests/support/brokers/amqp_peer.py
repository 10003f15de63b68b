"""An AMQP client for protocol tests: sends any frame, even a malformed one, and shows all replies.

The client uses a link, which is a socket or the engine in memory (`memory_broker.EngineLink`).
`amqp_frames` encodes frames; this module decodes them.

Names and texts are bytes and strings as in the engine. `ChannelPeer.refused` and `Peer.closed_with`
check the close that answers a fault, its class and method ids included, and finish the closing
handshake.
"""

import struct
import time
from collections import deque
from dataclasses import dataclass
from typing import TypeVar

from tests.support.brokers.amqp_frames import (
    BODY,
    FRAME_END,
    HEADER,
    HEARTBEAT,
    METHOD,
    PROTOCOL_HEADER,
    Frame,
    Link,
    frame,
    full_text,
    header_frame,
    method_frame,
    table,
)
from warrenmq.wire.method import Method
from warrenmq.wire.methods import (
    BasicAck,
    BasicCancel,
    BasicCancelOk,
    BasicConsume,
    BasicConsumeOk,
    BasicDeliver,
    BasicGet,
    BasicGetEmpty,
    BasicGetOk,
    BasicNack,
    BasicPublish,
    BasicQos,
    BasicQosOk,
    BasicReject,
    BasicReturn,
    ChannelClose,
    ChannelCloseOk,
    ChannelFlow,
    ChannelFlowOk,
    ChannelOpen,
    ChannelOpenOk,
    ConfirmSelect,
    ConfirmSelectOk,
    ConnectionClose,
    ConnectionCloseOk,
    ConnectionOpen,
    ConnectionOpenOk,
    ConnectionStart,
    ConnectionStartOk,
    ConnectionTune,
    ConnectionTuneOk,
    ExchangeBind,
    ExchangeBindOk,
    ExchangeDeclare,
    ExchangeDeclareOk,
    QueueBind,
    QueueBindOk,
    QueueDeclare,
    QueueDeclareOk,
    QueueDelete,
    QueueDeleteOk,
    decode_method,
)
from warrenmq.wire.properties import NO_PROPERTIES, Properties, decode_properties

# Silence (s) after which a foreign broker counts as quiet.
SILENCE_S = 0.15
# Delay (s) before a count: RabbitMQ's queues answer counts before they handle messages in transit.
LAG_S = 0.05


@dataclass
class Message:
    """A method with its content."""

    method: Method
    raw: bytes
    body: bytes
    # Sizes (bytes) of the body frames of the message.
    pieces: list[int]

    @property
    def properties(self) -> Properties:
        return decode_properties(self.raw)

    @property
    def deliver(self) -> BasicDeliver:
        assert isinstance(self.method, BasicDeliver), self.method
        return self.method

    @property
    def got(self) -> BasicGetOk:
        assert isinstance(self.method, BasicGetOk), self.method
        return self.method

    @property
    def returned(self) -> BasicReturn:
        assert isinstance(self.method, BasicReturn), self.method
        return self.method


class ChannelClosedError(Exception):
    """The broker closed the channel when something else was expected."""


class ConnectionClosedError(Exception):
    """The broker closed the connection when something else was expected."""


_M = TypeVar("_M", bound=Method)
_ASYNC = (BasicDeliver, BasicReturn, BasicAck, BasicNack, BasicCancel)


class Peer:
    """One connection."""

    def __init__(self, link: Link, is_foreign: bool = False) -> None:
        self.link = link
        # The broker is not warren: its counts may lag, and silence takes patience.
        self.is_foreign = is_foreign
        self.channels: dict[int, ChannelPeer] = {}
        self.is_closed = False
        self.frame_max = 131072
        self._buffer = b""
        self._frames: deque[Frame] = deque()
        # Methods on channel 0 that came while the test waited for another channel.
        self._control: deque[Method] = deque()

    # -- bytes and frames --------------------------------------------------------------------------

    def send(self, *chunks: bytes) -> None:
        self.link.send(b"".join(chunks))

    def method(self, channel: int, method: Method) -> None:
        self.send(method_frame(channel, method))

    def next_frame(self, timeout_s: float | None = None) -> Frame | None:
        """The next frame; None when none comes in time. EOFError at the end of the stream."""
        deadline = time.monotonic() + (self.link.patience_s if timeout_s is None else timeout_s)
        while not self._frames:
            data = self.link.receive(max(0.001, deadline - time.monotonic()))
            if data is None:
                return None
            if data == b"":
                raise EOFError("the broker closed the socket")
            self._buffer += data
            self._split()
        return self._frames.popleft()

    def _split(self) -> None:
        at = 0
        buffer = self._buffer
        while len(buffer) - at >= 8:
            kind, channel, size = struct.unpack_from(">BHI", buffer, at)
            if len(buffer) - at < size + 8:
                break
            assert buffer[at + 7 + size] == FRAME_END
            self._frames.append(Frame(kind, channel, buffer[at + 7 : at + 7 + size]))
            at += size + 8
        self._buffer = buffer[at:]

    def read(self, timeout_s: float | None = None) -> bool:
        """Pass the next frame to its channel; False when none comes in time."""
        found = self.next_frame(timeout_s)
        if found is None:
            return False
        if found.kind == HEARTBEAT:
            assert found.channel == 0
            assert found.payload == b""
        elif found.channel == 0:
            assert found.kind == METHOD
            method = decode_method(found.payload, 0, len(found.payload))
            if isinstance(method, ConnectionClose) and not self.is_closed:
                self._control.appendleft(method)
                raise ConnectionClosedError(f"{method.reply_code} {method.reply_text.decode()}")
            self._control.append(method)
        elif self.is_foreign and found.channel not in self.channels:
            # RabbitMQ's channel may look at its deliveries once more before it ends: it then closes
            # a channel for the same late delivery twice.
            assert found.kind == METHOD
            method = decode_method(found.payload, 0, len(found.payload))
            assert isinstance(method, ChannelClose), method
            self.method(found.channel, ChannelCloseOk())
        else:
            self.channels[found.channel].take(found)
        return True

    def has_frame(self) -> bool:
        """True while a whole frame has come that no `read` has taken."""
        return len(self._frames) > 0

    def has_control(self) -> bool:
        """True while a method on channel 0 has come that no `expect` has taken."""
        return len(self._control) > 0

    def expect(self, kind: type[_M], timeout_s: float | None = None) -> _M:
        """The next method on channel 0, which must be of this kind."""
        while not self._control:
            if not self.read(timeout_s):
                raise TimeoutError(f"no {kind.__name__}")
        method = self._control.popleft()
        assert isinstance(method, kind), method
        return method

    def frames_until_end(self, timeout_s: float | None = None) -> list[Frame]:
        """All frames until the broker closes the socket."""
        frames: list[Frame] = []
        while True:
            try:
                found = self.next_frame(timeout_s)
            except EOFError:
                return frames
            if found is None:
                raise TimeoutError("the socket stays open")
            frames.append(found)

    # -- life --------------------------------------------------------------------------------------

    def start(
        self, capabilities: dict[str, object] | None = None, user: bytes = b"guest"
    ) -> ConnectionTune:
        """Send header and login; returns the broker's tune."""
        self.send(PROTOCOL_HEADER)
        self.expect(ConnectionStart)
        if capabilities is None:
            capabilities = {"consumer_cancel_notify": True, "authentication_failure_close": True}
        properties = table(capabilities=capabilities, product="conformance")
        self.method(0, ConnectionStartOk(properties, b"PLAIN", b"\0" + user + b"\0guest", b"en_US"))
        return self.expect(ConnectionTune)

    def open(
        self,
        channel_max: int = 2047,
        frame_max: int = 131072,
        heartbeat: int = 0,
        capabilities: dict[str, object] | None = None,
        user: bytes = b"guest",
    ) -> "Peer":
        """Run the whole handshake."""
        self.start(capabilities, user)
        self.frame_max = frame_max
        self.method(0, ConnectionTuneOk(channel_max, frame_max, heartbeat))
        self.method(0, ConnectionOpen(b"/"))
        self.expect(ConnectionOpenOk)
        return self

    def channel(self, number: int = 0) -> "ChannelPeer":
        """Open a channel; 0: the lowest free number."""
        if number == 0:
            number = next(free for free in range(1, 65536) if free not in self.channels)
        channel = self.expect_channel(number)
        self.method(number, ChannelOpen())
        channel.expect(ChannelOpenOk)
        return channel

    def expect_channel(self, number: int) -> "ChannelPeer":
        """Accept frames of channel `number`, whether it is open or not."""
        self.channels[number] = ChannelPeer(self, number)
        return self.channels[number]

    def closed_with(self, code: int, text: str, class_id: int = 0, method_id: int = 0) -> None:
        """Expect connection.close with this reply, and answer; `text` without the code's name."""
        close = self.await_close()
        self.check_text(close.reply_text, full_text(code, text))
        ids = (close.failing_class_id, close.failing_method_id)
        assert (close.reply_code, *ids) == (code, class_id, method_id)
        self.finish_close()

    def check_text(self, found: bytes, expected: str) -> None:
        """Compare the text of a close; RabbitMQ breaks lines where it prints an Erlang term."""
        if self.is_foreign:
            assert "".join(found.decode().split()) == "".join(expected.split())
        else:
            assert found.decode() == expected

    def await_close(self, timeout_s: float | None = None) -> ConnectionClose:
        """Wait for connection.close, which must come."""
        while not (self._control and isinstance(self._control[0], ConnectionClose)):
            try:
                if not self.read(timeout_s):
                    raise TimeoutError("the connection stays open")
            except ConnectionClosedError:
                break
        method = self._control.popleft()
        assert isinstance(method, ConnectionClose)
        return method

    def finish_close(self) -> None:
        """Answer the broker's close, and expect the end of the stream."""
        self.is_closed = True
        self.method(0, ConnectionCloseOk())
        self.frames_until_end()

    def close(self) -> None:
        """Close the connection with the closing handshake."""
        self.method(0, ConnectionClose(200, b"bye", 0, 0))
        while True:
            self.read()
            if self._control and isinstance(self._control[-1], ConnectionCloseOk):
                break
        self.is_closed = True
        self.drop()

    def drop(self) -> None:
        """Close the link without a handshake."""
        self.link.close()


class ChannelPeer:
    """One channel; `events` (deliveries, returns, confirms, cancels) are apart from `replies`."""

    def __init__(self, peer: Peer, number: int) -> None:
        self.peer = peer
        self.number = number
        self.replies: deque[Method | Message] = deque()
        self.events: deque[Method | Message] = deque()
        # Replies and events in the order of arrival.
        self.log: list[Method | Message] = []
        self._message: Message | None = None
        self._missing_bytes = 0

    # -- in ----------------------------------------------------------------------------------------

    def take(self, found: Frame) -> None:
        """Handle a frame of this channel."""
        if found.kind == METHOD:
            assert self._message is None, "a method inside a content"
            method = decode_method(found.payload, 0, len(found.payload))
            if isinstance(method, BasicDeliver | BasicReturn | BasicGetOk):
                self._message = Message(method, b"", b"", [])
                self._missing_bytes = -1
            else:
                self._finish(method)
            return
        message = self._message
        assert message is not None
        if found.kind == HEADER:
            assert self._missing_bytes == -1
            class_id, weight, size = struct.unpack_from(">HHQ", found.payload)
            assert (class_id, weight) == (60, 0)
            message.raw = found.payload[12:]
            self._missing_bytes = size
        else:
            assert found.kind == BODY
            limit = self.peer.frame_max
            assert len(found.payload) > 0
            assert limit == 0 or len(found.payload) <= limit - 8
            message.body += found.payload
            message.pieces.append(len(found.payload))
            self._missing_bytes -= len(found.payload)
        assert self._missing_bytes >= 0
        if self._missing_bytes == 0:
            self._message = None
            self._finish(message)

    def _finish(self, item: Method | Message) -> None:
        self.log.append(item)
        method = item.method if isinstance(item, Message) else item
        (self.events if isinstance(method, _ASYNC) else self.replies).append(item)

    def reply(self) -> Method | Message:
        """The next reply; ChannelClosedError when it is a close."""
        while not self.replies:
            if not self.peer.read():
                raise TimeoutError("no reply")
        item = self.replies.popleft()
        if isinstance(item, ChannelClose):
            self.replies.appendleft(item)
            raise ChannelClosedError(f"{item.reply_code} {item.reply_text.decode()}")
        return item

    def expect(self, kind: type[_M]) -> _M:
        """The next reply, which must be of this kind."""
        item = self.reply()
        assert isinstance(item, kind), item
        return item

    def event(self, timeout_s: float | None = None) -> Method | Message:
        """The next event: a delivery, return, confirm or cancel."""
        while not self.events:
            if not self.peer.read(timeout_s):
                raise TimeoutError("nothing comes")
        return self.events.popleft()

    def message(self, timeout_s: float | None = None) -> Message:
        """The next delivery or return; TimeoutError when none comes in time."""
        item = self.event(timeout_s)
        assert isinstance(item, Message), item
        return item

    def bodies(self, count: int) -> list[bytes]:
        """Bodies of the next `count` deliveries."""
        return [self.message().body for _ in range(count)]

    def confirms(self, upto: int) -> list[BasicAck | BasicNack]:
        """Take confirms until all up to `upto` are decided; each must be decided once."""
        found: list[BasicAck | BasicNack] = []
        open_numbers = set(range(1, upto + 1))
        while open_numbers:
            item = self.event()
            assert isinstance(item, BasicAck | BasicNack), item
            found.append(item)
            tag = item.delivery_tag
            assert tag in open_numbers, "confirmed twice, or never published"
            open_numbers -= (
                {number for number in open_numbers if number <= tag} if item.multiple else {tag}
            )
        return found

    def quiet(self) -> None:
        """Assert that the broker sends nothing more on this channel."""
        assert isinstance(self.call(ChannelFlow(True)), ChannelFlowOk)
        if self.peer.is_foreign:
            while self.peer.read(SILENCE_S):
                pass
        assert list(self.events) == []
        assert list(self.replies) == []

    # -- out ---------------------------------------------------------------------------------------

    def send(self, method: Method) -> None:
        self.peer.method(self.number, method)

    def call(self, method: Method) -> Method | Message:
        """Send a method and wait for its reply."""
        self.send(method)
        return self.reply()

    def refused(self, method: Method, code: int, text: str) -> None:
        """Send a method that the broker answers with this close of the channel."""
        self.send(method)
        self.closed_with(code, text, method)

    def fatal(self, method: Method, code: int, text: str) -> None:
        """Send a method that the broker answers with this close of the connection."""
        self.send(method)
        self.peer.closed_with(code, text, method.class_id, method.method_id)

    def closed_with(self, code: int, text: str, method: Method | None = None) -> None:
        """Expect channel.close for `method`, and answer it; `text` without the code's name."""
        close = self.await_close()
        self.peer.check_text(close.reply_text, full_text(code, text))
        ids = (method.class_id, method.method_id) if method is not None else (0, 0)
        assert (close.reply_code, close.failing_class_id, close.failing_method_id) == (code, *ids)
        self.send(ChannelCloseOk())
        del self.peer.channels[self.number]

    def await_close(self) -> ChannelClose:
        """Wait for channel.close, which must come."""
        while not self.replies:
            if not self.peer.read():
                raise TimeoutError("the channel stays open")
        item = self.replies.popleft()
        assert isinstance(item, ChannelClose), item
        return item

    def close(self) -> None:
        """Close the channel with the closing handshake."""
        self.send(ChannelClose(200, b"bye", 0, 0))
        self.expect(ChannelCloseOk)
        del self.peer.channels[self.number]

    # -- the usual ---------------------------------------------------------------------------------

    def declare(
        self,
        queue: bytes = b"",
        durable: bool = False,
        exclusive: bool = False,
        auto_delete: bool = False,
        arguments: bytes = b"",
    ) -> QueueDeclareOk:
        self.send(QueueDeclare(queue, False, durable, exclusive, auto_delete, False, arguments))
        return self.expect(QueueDeclareOk)

    def count(self, queue: bytes) -> int:
        """Number of ready messages."""
        if self.peer.is_foreign:
            time.sleep(LAG_S)
        self.send(QueueDeclare(queue, True))
        return self.expect(QueueDeclareOk).message_count

    def exchange(
        self,
        name: bytes,
        type: bytes = b"direct",
        durable: bool = False,
        auto_delete: bool = False,
        internal: bool = False,
        arguments: bytes = b"",
    ) -> None:
        self.send(
            ExchangeDeclare(name, type, False, durable, auto_delete, internal, False, arguments)
        )
        self.expect(ExchangeDeclareOk)

    def bind(self, queue: bytes, exchange: bytes, key: bytes = b"", arguments: bytes = b"") -> None:
        self.send(QueueBind(queue, exchange, key, False, arguments))
        self.expect(QueueBindOk)

    def bind_exchange(
        self, to: bytes, source: bytes, key: bytes = b"", arguments: bytes = b""
    ) -> None:
        self.send(ExchangeBind(to, source, key, False, arguments))
        self.expect(ExchangeBindOk)

    def delete(self, queue: bytes) -> int:
        self.send(QueueDelete(queue))
        return self.expect(QueueDeleteOk).message_count

    def publish(
        self,
        key: bytes,
        body: bytes = b"",
        properties: bytes = NO_PROPERTIES,
        exchange: bytes = b"",
        mandatory: bool = False,
    ) -> None:
        limit = self.peer.frame_max - 8 if self.peer.frame_max else len(body)
        self.peer.send(
            method_frame(self.number, BasicPublish(exchange, key, mandatory)),
            header_frame(self.number, len(body), properties),
            *(
                frame(BODY, self.number, body[at : at + limit])
                for at in range(0, len(body), max(1, limit))
            ),
        )

    def publish_each(self, key: bytes, *bodies: bytes) -> None:
        for body in bodies:
            self.publish(key, body)

    def get(self, queue: bytes, no_ack: bool = False) -> Message:
        item = self.call(BasicGet(queue, no_ack))
        assert isinstance(item, Message), item
        return item

    def is_empty(self, queue: bytes) -> bool:
        return isinstance(self.call(BasicGet(queue)), BasicGetEmpty)

    def drain(self, queue: bytes) -> list[bytes]:
        """Take all ready messages; returns their bodies."""
        bodies = []
        while isinstance(item := self.call(BasicGet(queue, True)), Message):
            bodies.append(item.body)
        return bodies

    def consume(
        self,
        queue: bytes,
        tag: bytes = b"",
        no_ack: bool = False,
        exclusive: bool = False,
        arguments: bytes = b"",
    ) -> bytes:
        self.send(BasicConsume(queue, tag, False, no_ack, exclusive, False, arguments))
        return self.expect(BasicConsumeOk).consumer_tag

    def cancel(self, tag: bytes) -> None:
        self.send(BasicCancel(tag))
        self.expect(BasicCancelOk)

    def qos(self, count: int, whole_channel: bool = False) -> None:
        self.send(BasicQos(0, count, whole_channel))
        self.expect(BasicQosOk)

    def ack(self, tag: int, multiple: bool = False) -> None:
        self.send(BasicAck(tag, multiple))

    def nack(self, tag: int, multiple: bool = False, requeue: bool = True) -> None:
        self.send(BasicNack(tag, multiple, requeue))

    def reject(self, tag: int, requeue: bool = True) -> None:
        self.send(BasicReject(tag, requeue))

    def confirm_select(self) -> None:
        self.send(ConfirmSelect())
        self.expect(ConfirmSelectOk)
