"""A null server: it drops publishes unread and sends prepared deliveries without end.

Only a server that is never the bottleneck shows the cost of the load generator itself. One process
serves one publishing and one consuming connection at a time, each in a thread that spends its time
in system calls.
"""

import os
import socket
import threading

from librt.strings import BytesWriter

from warrenmq.wire.encode import write_content, write_method_frame
from warrenmq.wire.errors import AmqpError
from warrenmq.wire.frames import FRAME_METHOD, NEED_DATA, FrameBuffer
from warrenmq.wire.method import Method
from warrenmq.wire.methods import (
    BasicConsume,
    BasicConsumeOk,
    BasicDeliver,
    BasicPublish,
    BasicQos,
    BasicQosOk,
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
    QueueDeclare,
    QueueDeclareOk,
    decode_method,
)
from warrenmq.wire.properties import Properties

FRAME_MAX = 131072
BATCH_BYTES = 262144


class SinkSession:
    """One connection: answers methods until basic.publish or basic.consume, then moves bytes."""

    def __init__(self, sock: socket.socket, size: int) -> None:
        self.sock = sock
        self.frames = FrameBuffer(FRAME_MAX)
        self.size = size

    def run(self) -> None:
        try:
            if self.sock.recv(8, socket.MSG_WAITALL) != b"AMQP\x00\x00\x09\x01":
                return
            self.send(
                0,
                ConnectionStart(
                    version_major=0, version_minor=9, mechanisms=b"PLAIN", locales=b"en_US"
                ),
            )
            while True:
                kind = self.frames.next_frame()
                if kind == NEED_DATA:
                    chunk = self.sock.recv(65536)
                    if not chunk:
                        return
                    self.frames.feed(chunk)
                elif kind == FRAME_METHOD:
                    method = decode_method(self.frames.data, self.frames.start, self.frames.end)
                    if isinstance(method, BasicPublish):
                        self.take_until_close()
                        self.send(0, ConnectionCloseOk())
                        return
                    if isinstance(method, BasicConsume):
                        self.send(1, BasicConsumeOk(consumer_tag=b"sink"))
                        self.deliver()
                        return
                    self.answer(method)
        except (OSError, AmqpError):
            return
        finally:
            self.sock.close()

    def answer(self, method: Method) -> None:
        if isinstance(method, ConnectionStartOk):
            self.send(0, ConnectionTune(channel_max=2047, frame_max=FRAME_MAX, heartbeat=0))
        elif isinstance(method, ConnectionOpen):
            self.send(0, ConnectionOpenOk())
        elif isinstance(method, ConnectionClose):
            self.send(0, ConnectionCloseOk())
        elif isinstance(method, ChannelOpen):
            self.send(1, ChannelOpenOk())
        elif isinstance(method, BasicQos):
            self.send(1, BasicQosOk())
        elif isinstance(method, ConfirmSelect):
            self.send(1, ConfirmSelectOk())
        elif isinstance(method, QueueDeclare):
            self.send(1, QueueDeclareOk(queue=method.queue or b"sink"))

    def send(self, channel: int, method: Method) -> None:
        out = BytesWriter()
        write_method_frame(out, channel, method)
        self.sock.sendall(out.getvalue())

    def take_until_close(self) -> None:
        """Read and drop octets until connection.close, the last method a client sends."""
        buffer = bytearray(1 << 20)
        close = b"\x00\x0a\x00\x32"
        while True:
            count = self.sock.recv_into(buffer)
            if count == 0 or buffer.rfind(close, max(count - 64, 0), count) >= 0:
                return

    def deliver(self) -> None:
        """Send one batch of deliveries until connection.close; a second thread drops the acks."""
        out = BytesWriter()
        properties = Properties(content_type=b"application/octet-stream", delivery_mode=1).encode()
        body = bytes(self.size)
        while len(out) < BATCH_BYTES:
            write_method_frame(
                out, 1, BasicDeliver(consumer_tag=b"sink", delivery_tag=1, routing_key=b"sink")
            )
            write_content(out, 1, properties, body, FRAME_MAX)
        batch = out.getvalue()
        acks = threading.Thread(target=self.take_until_close, daemon=True)
        acks.start()
        while acks.is_alive():
            self.sock.sendall(batch)
        self.send(0, ConnectionCloseOk())


def serve(listener: socket.socket, size: int) -> None:
    """Serve connections of `listener` without end; deliveries have bodies of `size` octets."""
    while True:
        sock, _ = listener.accept()
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        threading.Thread(target=SinkSession(sock, size).run, daemon=True).start()


def start_sink(size: int) -> tuple[int, int]:
    """Fork a sink; return its process id and its port on the loopback.

    The caller ends the process with SIGTERM and waits for it.
    """
    listener = socket.create_server(("127.0.0.1", 0))
    pid = os.fork()
    if pid == 0:
        try:
            serve(listener, size)
        finally:
            os._exit(1)
    port: int = listener.getsockname()[1]
    listener.close()
    return pid, port
