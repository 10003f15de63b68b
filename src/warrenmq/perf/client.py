"""A small blocking AMQP client: opens a connection with one channel, and declares a run's topology.

A run uses it for set-up and tear-down only. Afterwards a publisher or consumer, which never blocks,
takes over the socket. The client negotiates heartbeats off (0): a generator that waits inside a
long send must not be mistaken for a dead one, and the end of the process closes its sockets.
"""

import socket
from typing import Final

from librt.strings import BytesWriter

from warrenmq.perf.errors import PerfError
from warrenmq.perf.options import Address
from warrenmq.wire import methods
from warrenmq.wire.encode import PROTOCOL_HEADER, write_method_frame
from warrenmq.wire.errors import ConnectionException
from warrenmq.wire.field_table import encode_table, fields_from_python
from warrenmq.wire.frames import FRAME_METHOD, NEED_DATA, FrameBuffer
from warrenmq.wire.method import Method

FRAME_MAX: Final = 131072
RECEIVE_BYTES: Final = 65536
CHANNEL: Final = 1
CAPABILITIES: Final[dict[str, object]] = {
    "connection.blocked": True,
    "consumer_cancel_notify": True,
    "basic.nack": True,
    "publisher_confirms": True,
    "authentication_failure_close": True,
}


class Client:
    """One connection with channel 1 open. Every failure is a PerfError with the broker's answer."""

    def __init__(self, address: Address, name: str, timeout_s: float) -> None:
        self.frame_max: int = FRAME_MAX
        self._frames: FrameBuffer = FrameBuffer(FRAME_MAX)
        try:
            self.sock: socket.socket = socket.create_connection(
                (address.host, address.port), timeout_s
            )
        except OSError as error:
            raise PerfError(f"cannot connect to {address.host}:{address.port}: {error}") from None
        try:
            self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if address.tls is not None:
                try:
                    self.sock = address.tls.wrap(self.sock, address.host)
                except (OSError, ValueError) as fault:
                    raise PerfError(f"no TLS with {address.host}:{address.port}: {fault}") from None
            self._open(address, name)
        except BaseException:
            self.sock.close()
            raise

    def _open(self, address: Address, name: str) -> None:
        self._send(PROTOCOL_HEADER)
        if not isinstance(self.receive(), methods.ConnectionStart):
            raise PerfError("the broker did not begin with connection.start")
        properties: dict[str, object] = {
            "product": "warren perf",
            "connection_name": name,
            "capabilities": CAPABILITIES,
        }
        login = b"\0" + address.user.encode() + b"\0" + address.password.encode()
        tune = self.call(
            0,
            methods.ConnectionStartOk(
                client_properties=encode_table(fields_from_python(properties)),
                mechanism=b"PLAIN",
                response=login,
                locale=b"en_US",
            ),
        )
        if not isinstance(tune, methods.ConnectionTune):
            raise PerfError("the broker did not answer the login with connection.tune")
        if tune.frame_max != 0:
            self.frame_max = min(FRAME_MAX, tune.frame_max)
        self.send(
            0,
            methods.ConnectionTuneOk(
                channel_max=tune.channel_max, frame_max=self.frame_max, heartbeat=0
            ),
        )
        if not isinstance(
            self.call(0, methods.ConnectionOpen(virtual_host=address.vhost.encode())),
            methods.ConnectionOpenOk,
        ):
            raise PerfError("the broker did not answer connection.open")
        if not isinstance(self.call(CHANNEL, methods.ChannelOpen()), methods.ChannelOpenOk):
            raise PerfError("the broker did not answer channel.open")

    def send(self, channel: int, method: Method) -> None:
        """Send `method` without waiting for an answer."""
        out = BytesWriter()
        write_method_frame(out, channel, method)
        self._send(out.getvalue())

    def call(self, channel: int, method: Method) -> Method:
        """Send `method` and return the next method of the broker, which must not be a close."""
        self.send(channel, method)
        reply = self.receive()
        if isinstance(reply, (methods.ConnectionClose, methods.ChannelClose)):
            raise PerfError(
                f"the broker answered {reply.reply_code} {reply.reply_text.decode('utf-8', 'replace')}"
            )
        return reply

    def request(self, method: Method) -> Method:
        """Like `call`, on the open channel."""
        return self.call(CHANNEL, method)

    def close(self) -> None:
        """Close the connection in good order as far as the broker still answers; never raises."""
        try:
            self.sock.settimeout(2.0)
            self.send(0, methods.ConnectionClose(reply_code=200, reply_text=b"done"))
            while not isinstance(self.receive(), methods.ConnectionCloseOk):
                pass
        except (PerfError, OSError):
            pass
        finally:
            self.sock.close()

    def _send(self, octets: bytes) -> None:
        try:
            self.sock.sendall(octets)
        except OSError as error:
            raise PerfError(f"the connection broke: {error}") from None

    def receive(self) -> Method:
        """The next method of the broker, on any channel."""
        try:
            while True:
                kind = self._frames.next_frame()
                if kind == NEED_DATA:
                    self._frames.feed(self._receive_chunk())
                elif kind == FRAME_METHOD:
                    return methods.decode_method(
                        self._frames.data, self._frames.start, self._frames.end
                    )
        except ConnectionException as error:
            raise PerfError(
                f"the broker sent bytes that are not AMQP 0-9-1: {error.text}"
            ) from None

    def _receive_chunk(self) -> bytes:
        try:
            chunk: bytes = self.sock.recv(RECEIVE_BYTES)
        except TimeoutError:
            raise PerfError("the broker did not answer in time") from None
        except OSError as error:
            raise PerfError(f"the connection broke: {error}") from None
        if not chunk:
            raise PerfError(
                "the broker closed the connection without a reason (a refused login looks like this)"
            )
        return chunk
