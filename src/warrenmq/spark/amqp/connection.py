"""A blocking AMQP 0-9-1 connection with one channel, for the driver's spool and for publishers.

The connection uses warren's own codec instead of a client library. Client libraries decode the
headers of a message and give no access to their bytes, but `headers_raw` must be exact; they also
write one message at a time. Only one thread may use a connection. AmqpLostError is transient: the
request may succeed when the broker is back. AmqpRefusedError is the broker's answer and final. No
error text contains the password.
"""

import os
import select
import socket
import ssl
import time
from collections import deque
from dataclasses import dataclass
from typing import Final, TypeAlias, TypeVar

from librt.strings import BytesWriter

from warrenmq.admin.client.client import NodeAddress, TlsRefusedError, open_socket
from warrenmq.spark.retry import MayPassError
from warrenmq.wire import methods
from warrenmq.wire.encode import HEARTBEAT_FRAME, PROTOCOL_HEADER, write_method_frame
from warrenmq.wire.errors import CONNECTION_FORCED, INTERNAL_ERROR, AmqpError
from warrenmq.wire.field_table import encode_table, fields_from_python
from warrenmq.wire.frames import (
    FRAME_BODY,
    FRAME_HEADER,
    FRAME_HEARTBEAT,
    FRAME_METHOD,
    NEED_DATA,
    FrameBuffer,
)
from warrenmq.wire.method import Method

CHANNEL: Final = 1
FRAME_MAX: Final = 131072
RECEIVE_BYTES: Final = 262144
REPLY_TIMEOUT_S: Final = 60.0
CLOSE_TIMEOUT_S: Final = 2.0
_CAPABILITIES: Final[dict[str, object]] = {
    "connection.blocked": True,
    "consumer_cancel_notify": True,
    "basic.nack": True,
    "publisher_confirms": True,
    "authentication_failure_close": True,
}
# Reply codes of transient closes: the broker stops, or has lost something that may come back. Such
# a close is no answer to a request.
_PASSING: Final = (CONNECTION_FORCED, INTERNAL_ERROR)
# The exceptions of a non-blocking socket, with and without TLS, that would have to wait.
_NOT_NOW: Final = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)
# Without heartbeats the kernel finds dead peers: it probes after 60 s of silence, then every 10 s,
# six times.
_KEEPALIVE: Final = ((socket.TCP_KEEPIDLE, 60), (socket.TCP_KEEPINTVL, 10), (socket.TCP_KEEPCNT, 6))

Expected = TypeVar("Expected", bound=Method)


class AmqpLostError(MayPassError):
    """The connection cannot be made, or it broke; a later attempt may succeed."""


class AmqpRefusedError(Exception):
    """The broker refused a request; `code` is its AMQP reply code."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text


@dataclass(slots=True)
class Delivery:
    """A message for a consumer; `properties` is the property block as sent, undecoded."""

    method: methods.BasicDeliver
    properties: bytes
    body: bytes


@dataclass(slots=True)
class Returned:
    """A message that the broker returned to its publisher because no queue takes it."""

    method: methods.BasicReturn
    properties: bytes
    body: bytes


Event: TypeAlias = Method | Delivery | Returned


class AmqpConnection:
    """An open connection; the constructor connects.

    With `heartbeat_s` 0 there are no heartbeats, and the connection may be idle for any time.
    """

    def __init__(self, address: NodeAddress, purpose: str, heartbeat_s: int) -> None:
        self._address = address
        self.frame_max = FRAME_MAX
        # True while the broker takes no messages (connection.blocked).
        self.is_blocked = False
        self._heartbeat_s = heartbeat_s
        self._frames = FrameBuffer(FRAME_MAX)
        self._events: deque[Event] = deque()
        self._method: methods.BasicDeliver | methods.BasicReturn | None = None
        self._properties = b""
        self._parts: list[bytes] = []
        self._body_left = 0
        try:
            self._socket = open_socket(address)
        except TlsRefusedError:
            raise
        except OSError as error:
            raise AmqpLostError(f"no connection to {address.where}: {error}") from None
        self._last_sent = self._last_received = time.monotonic()
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for option, value in _KEEPALIVE:
                self._socket.setsockopt(socket.IPPROTO_TCP, option, value)
            self._socket.setblocking(False)
            self._open(purpose)
        except BaseException:
            self._socket.close()
            raise

    def _open(self, purpose: str) -> None:
        self.send(PROTOCOL_HEADER)
        self.expect(methods.ConnectionStart)
        properties: dict[str, object] = {
            "product": "warren",
            "connection_name": f"{purpose}, process {os.getpid()} on {socket.gethostname()}"[:255],
            "capabilities": _CAPABILITIES,
        }
        address = self._address
        self._send_method(
            0,
            methods.ConnectionStartOk(
                client_properties=encode_table(fields_from_python(properties)),
                mechanism=b"PLAIN",
                response=b"\0" + address.user.encode() + b"\0" + address.password.encode(),
                locale=b"en_US",
            ),
        )
        tune = self.expect(methods.ConnectionTune)
        if tune.frame_max != 0:
            self.frame_max = min(FRAME_MAX, tune.frame_max)
        if tune.heartbeat != 0:
            self._heartbeat_s = min(self._heartbeat_s, tune.heartbeat)
        self._send_method(
            0,
            methods.ConnectionTuneOk(
                channel_max=tune.channel_max, frame_max=self.frame_max, heartbeat=self._heartbeat_s
            ),
        )
        self._send_method(0, methods.ConnectionOpen(virtual_host=address.vhost.encode()))
        self.expect(methods.ConnectionOpenOk)
        self.call(methods.ChannelOpen(), methods.ChannelOpenOk)

    def call(self, method: Method, expected: type[Expected]) -> Expected:
        """Send `method` on the channel and return the broker's answer.

        Other events that arrive meanwhile are kept for `next_event`.
        """
        self._send_method(CHANNEL, method)
        return self.expect(expected)

    def expect(self, expected: type[Expected]) -> Expected:
        """Wait for a method of the class `expected`; AmqpLostError after REPLY_TIMEOUT_S.

        Other events that arrive meanwhile are kept for `next_event`.
        """
        deadline = time.monotonic() + REPLY_TIMEOUT_S
        kept: list[Event] = []
        try:
            while True:
                event = self.next_event()
                if isinstance(event, expected):
                    return event
                if event is not None:
                    kept.append(event)
                elif not self.wait(deadline - time.monotonic()):
                    raise AmqpLostError(
                        f"{self._address.where} did not answer within {REPLY_TIMEOUT_S:g} s"
                    )
        finally:
            self._events.extendleft(reversed(kept))

    @property
    def has_events(self) -> bool:
        """True while `next_event` has events that arrived during a wait for an answer."""
        return bool(self._events)

    def next_event(self) -> Event | None:
        """The next complete event, or None; never waits.

        Raises AmqpLostError or AmqpRefusedError when the broker has closed the connection or
        channel.
        """
        if self._events:
            return self._events.popleft()
        return self._read_event()

    def wait(self, timeout_s: float) -> bool:
        """Read what arrives within `timeout_s`; False when nothing did. Sends due heartbeats."""
        deadline = time.monotonic() + timeout_s
        while True:
            now = time.monotonic()
            self._beat(now)
            pause_s = max(0.0, deadline - now)
            if self._heartbeat_s:
                pause_s = min(pause_s, self._heartbeat_s / 2)
            if self._ready(select.POLLIN, pause_s):
                self._receive()
                return True
            if time.monotonic() >= deadline:
                return False

    def send(self, octets: bytes) -> None:
        """Send all of `octets`, and keep the events that arrive meanwhile.

        Reading while sending is necessary: a broker whose socket to us is full may stop reading.
        """
        view = memoryview(octets)
        while view:
            try:
                sent = self._socket.send(view)
            except _NOT_NOW:
                sent = 0
            except OSError as error:
                raise self._lost(error) from None
            view = view[sent:]
            self._last_sent = time.monotonic()
            if view:
                ready = self._ready(select.POLLIN | select.POLLOUT, REPLY_TIMEOUT_S)
                if not ready and not self.is_blocked:
                    raise AmqpLostError(
                        f"{self._address.where} took nothing for {REPLY_TIMEOUT_S:g} s"
                    )
                if ready & ~select.POLLOUT:
                    self._receive()
                    self._keep_events()

    def send_method(self, method: Method) -> None:
        """Send `method` on the channel."""
        self._send_method(CHANNEL, method)

    def close(self) -> None:
        """Close with the AMQP handshake, as far as the broker still answers; never raises."""
        try:
            self._send_method(0, methods.ConnectionClose(reply_code=200, reply_text=b"done"))
            deadline = time.monotonic() + CLOSE_TIMEOUT_S
            while not isinstance(self.next_event(), methods.ConnectionCloseOk):
                if not self.wait(deadline - time.monotonic()):
                    break
        except (AmqpLostError, AmqpRefusedError):
            pass
        finally:
            self._socket.close()

    def drop(self) -> None:
        """Close the socket without the AMQP handshake."""
        self._socket.close()

    def _send_method(self, channel: int, method: Method) -> None:
        out = BytesWriter()
        write_method_frame(out, channel, method)
        self.send(out.getvalue())

    def _beat(self, now: float) -> None:
        if self._heartbeat_s == 0:
            return
        if now - self._last_sent >= self._heartbeat_s / 2:
            self.send(HEARTBEAT_FRAME)
        if now - self._last_received > 2 * self._heartbeat_s:
            # This process may have been busy: bytes that wait in the socket count as a heartbeat.
            if not self._ready(select.POLLIN, 0):
                raise AmqpLostError(
                    f"no heartbeat from {self._address.where} for {2 * self._heartbeat_s} s"
                )

    def _ready(self, events: int, timeout_s: float) -> int:
        """Wait for one of `events` of the socket; returns the events there are, 0 for none.

        An error or the end of the connection is an event, too, and reading tells which. `select()`
        would refuse a socket whose descriptor is 1,024 or higher, as in a Spark executor with many
        open files.
        """
        poll = select.poll()
        poll.register(self._socket, events)
        ready = poll.poll(1000 * timeout_s)
        return ready[0][1] if ready else 0

    def _receive(self) -> None:
        try:
            chunk = self._socket.recv(RECEIVE_BYTES)
        except _NOT_NOW:
            return
        except OSError as error:
            raise self._lost(error) from None
        if not chunk:
            raise AmqpLostError(f"{self._address.where} closed the connection without a reason")
        self._last_received = time.monotonic()
        # Read the complete frames first, so that their events keep their place before the new
        # bytes.
        self._keep_events()
        self._frames.feed(chunk)

    def _keep_events(self) -> None:
        while (event := self._read_event()) is not None:
            self._events.append(event)

    def _read_event(self) -> Event | None:
        frames = self._frames
        try:
            while True:
                kind = frames.next_frame()
                if kind == NEED_DATA:
                    return None
                if kind == FRAME_BODY:
                    part = frames.data[frames.start : frames.end]
                    self._body_left -= len(part)
                    if self._body_left == 0:
                        return self._content(part)
                    self._parts.append(part)
                elif kind == FRAME_HEADER:
                    self._body_left = int.from_bytes(
                        frames.data[frames.start + 4 : frames.start + 12], "big"
                    )
                    self._properties = frames.data[frames.start + 12 : frames.end]
                    if self._body_left == 0:
                        return self._content(b"")
                elif kind == FRAME_METHOD:
                    method = methods.decode_method(frames.data, frames.start, frames.end)
                    if isinstance(method, (methods.BasicDeliver, methods.BasicReturn)):
                        self._method = method
                    elif not self._is_of_connection(method):
                        return method
                elif kind != FRAME_HEARTBEAT:
                    raise AmqpLostError(
                        f"{self._address.where} sent a frame of unknown type {kind}"
                    )
        except AmqpError as error:
            raise AmqpLostError(
                f"{self._address.where} does not speak AMQP 0-9-1: {error.text}"
            ) from None

    def _content(self, last_part: bytes) -> Delivery | Returned:
        body = last_part
        if self._parts:
            self._parts.append(last_part)
            body = b"".join(self._parts)
            self._parts.clear()
        method = self._method
        if method is None:
            raise AmqpLostError(f"{self._address.where} sent a content without its method")
        self._method = None
        if isinstance(method, methods.BasicDeliver):
            return Delivery(method, self._properties, body)
        return Returned(method, self._properties, body)

    def _is_of_connection(self, method: Method) -> bool:
        """Handle `method` if it concerns the connection itself; True if so. Raises for closes."""
        if isinstance(method, (methods.ConnectionClose, methods.ChannelClose)):
            text = method.reply_text.decode("utf-8", "replace")
            if method.reply_code in _PASSING or "down or inaccessible" in text:
                raise AmqpLostError(f"{self._address.where} closed: {text}")
            raise AmqpRefusedError(method.reply_code, f"{self._address.where} answered: {text}")
        if isinstance(method, methods.ConnectionBlocked):
            self.is_blocked = True
            return True
        if isinstance(method, methods.ConnectionUnblocked):
            self.is_blocked = False
            return True
        return False

    def _lost(self, error: OSError) -> AmqpLostError:
        return AmqpLostError(f"the connection to {self._address.where} broke: {error}")
