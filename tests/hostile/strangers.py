"""Hostile clients for asyncio. Each is one connection, and none closes it in an orderly way."""

import asyncio
import random
import socket
import struct
from collections.abc import Awaitable, Callable

from tests.support.brokers.amqp_frames import (
    BODY,
    PERSISTENT,
    PROTOCOL_HEADER,
    frame,
    header_frame,
    method_frame,
    payload_of,
)
from warrenmq.wire.methods import (
    BasicConsume,
    BasicPublish,
    ChannelOpen,
    ChannelOpenOk,
    ConnectionOpen,
    ConnectionStartOk,
    ConnectionTuneOk,
    ExchangeDeclare,
    QueueBind,
    QueueDeclare,
)

# Time that a stranger waits for an answer, or for the broker to close the connection.
PATIENCE_S = 0.5
LOGIN_TIMEOUT_S = 60.0

HTTP = b"GET / HTTP/1.1\r\nHost: broker\r\nUser-Agent: curl/8\r\nAccept: */*\r\n\r\n"
TLS_HELLO = bytes.fromhex("16030100c8010000c40303") + bytes(range(190))
LOGIN = ConnectionStartOk(b"", b"PLAIN", b"\0guest\0guest", b"en_US")
OPENING = (
    PROTOCOL_HEADER
    + method_frame(0, LOGIN)
    + method_frame(0, ConnectionTuneOk(2047, 131072, 0))
    + method_frame(0, ConnectionOpen(b"/"))
)


class Stranger:
    """One hostile connection, with a random generator of its own."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, seed: int
    ) -> None:
        self.reader = reader
        self.writer = writer
        self.random = random.Random(seed)

    async def say(self, *chunks: bytes) -> None:
        """Send, and wait at most PATIENCE_S until the kernel has taken the bytes."""
        self.writer.write(b"".join(chunks))
        try:
            await asyncio.wait_for(self.writer.drain(), PATIENCE_S)
        except TimeoutError:
            return

    async def listen(self) -> None:
        """Read until the end of the stream, or PATIENCE_S without data."""
        try:
            while await asyncio.wait_for(self.reader.read(65536), PATIENCE_S):
                pass
        except TimeoutError:
            return

    async def log_in(self, channels: int = 1) -> None:
        """Log in and open channels 1 to `channels`; return when the broker has opened the last."""
        opens = b"".join(method_frame(number, ChannelOpen()) for number in range(1, channels + 1))
        await self.say(OPENING + opens)
        last = method_frame(channels, ChannelOpenOk())
        answers = b""
        while last not in answers:
            data = await asyncio.wait_for(self.reader.read(65536), LOGIN_TIMEOUT_S)
            if not data:
                return
            answers = answers[-100:] + data


async def garbage(stranger: Stranger) -> None:
    await stranger.say(stranger.random.randbytes(stranger.random.randrange(1, 3000)))
    await stranger.listen()


async def garbage_after_header(stranger: Stranger) -> None:
    await stranger.say(
        PROTOCOL_HEADER, stranger.random.randbytes(stranger.random.randrange(1, 3000))
    )


async def garbage_after_login(stranger: Stranger) -> None:
    await stranger.log_in()
    await stranger.say(stranger.random.randbytes(stranger.random.randrange(1, 3000)))


async def half_a_header(stranger: Stranger) -> None:
    await stranger.say(PROTOCOL_HEADER[: stranger.random.randrange(0, 8)])


async def half_a_handshake(stranger: Stranger) -> None:
    await stranger.say(OPENING[: stranger.random.randrange(8, len(OPENING))])


async def http(stranger: Stranger) -> None:
    await stranger.say(HTTP)
    await stranger.listen()


async def tls(stranger: Stranger) -> None:
    await stranger.say(TLS_HELLO)
    await stranger.listen()


async def wrong_password(stranger: Stranger) -> None:
    await stranger.say(PROTOCOL_HEADER)
    await stranger.say(
        method_frame(0, ConnectionStartOk(b"", b"PLAIN", b"\0guest\0letmein", b"en_US"))
    )


async def unknown_mechanism(stranger: Stranger) -> None:
    await stranger.say(PROTOCOL_HEADER)
    await stranger.say(
        method_frame(0, ConnectionStartOk(b"", b"KERBEROS\xff", bytes(4000), b"en_US"))
    )


async def oversized_frame(stranger: Stranger) -> None:
    if stranger.random.random() < 0.5:
        await stranger.log_in()
    else:
        await stranger.say(PROTOCOL_HEADER)
    kind, channel = stranger.random.choice([1, 2, 3, 8]), stranger.random.choice([0, 1, 65535])
    size = stranger.random.choice([131073, 1 << 24, 0x7FFFFFFF, 0xFFFFFFFF])
    await stranger.say(struct.pack(">BHI", kind, channel, size), bytes(2000))


async def wrong_channel(stranger: Stranger) -> None:
    await stranger.log_in()
    number = stranger.random.choice([2, 2047, 2048, 65535])
    await stranger.say(
        method_frame(number, BasicPublish(b"", b"q")),
        header_frame(number, 3),
        frame(BODY, number, b"abc"),
    )


async def content_out_of_place(stranger: Stranger) -> None:
    await stranger.log_in()
    parts = [
        method_frame(1, BasicPublish(b"", b"q")),
        header_frame(1, 3),
        frame(BODY, 1, b"abc"),
        header_frame(1, 1 << 63),
    ]
    stranger.random.shuffle(parts)
    await stranger.say(*parts)


async def no_end_octet(stranger: Stranger) -> None:
    await stranger.log_in()
    broken = bytearray(method_frame(1, QueueDeclare(b"q")))
    broken[-1] = stranger.random.randrange(0xCE)
    await stranger.say(bytes(broken))


async def unknown_methods(stranger: Stranger) -> None:
    await stranger.log_in()
    await stranger.say(
        frame(
            1,
            stranger.random.choice([0, 1]),
            stranger.random.randbytes(stranger.random.randrange(40)),
        )
    )


async def torn_arguments(stranger: Stranger) -> None:
    await stranger.log_in()
    payload = payload_of(
        QueueBind(b"queue", b"exchange", b"key", False, b"\x01xS\x00\x00\x00\x02ab")
    )
    await stranger.say(frame(1, 1, payload[: stranger.random.randrange(4, len(payload))]))


async def huge_table(stranger: Stranger) -> None:
    # The table is nested as deep as fits, or has many fields, or declares a wrong length.
    kind = stranger.random.randrange(3)
    table = b""
    if kind == 0:
        for _ in range(stranger.random.choice([60, 70, 1000, 8000])):
            table = b"\x01tF" + struct.pack(">I", len(table)) + table
    elif kind == 1:
        table = b"".join(b"\x04%04dI\x00\x00\x00\x01" % number for number in range(9999))
    else:
        table = b"\x01tF\xff\xff\xff\xf0" + bytes(5000)
    table = table[:130_000] if kind else table[-130_000:]
    if stranger.random.random() < 0.3:
        await stranger.say(PROTOCOL_HEADER)
        await stranger.say(
            method_frame(0, ConnectionStartOk(table[:4000], b"PLAIN", b"\0guest\0guest", b"en_US"))
        )
        return
    await stranger.log_in()
    await stranger.say(
        method_frame(1, ExchangeDeclare(b"x", b"headers", False, False, False, False, False, table))
    )


async def slow_sender(stranger: Stranger) -> None:
    text = (
        OPENING
        + method_frame(1, ChannelOpen())
        + method_frame(1, QueueDeclare(b"slow", exclusive=True))
    )
    for at in range(0, len(text), 9):
        await stranger.say(text[at : at + 9])
        await asyncio.sleep(0.01)


async def never_reads(stranger: Stranger) -> None:
    await stranger.log_in()
    returned = (
        method_frame(1, BasicPublish(b"", b"nowhere", True))
        + header_frame(1, 500)
        + frame(BODY, 1, bytes(500))
    )
    for _ in range(5):
        await stranger.say(returned * 100)


async def many_channels(stranger: Stranger) -> None:
    await stranger.log_in(stranger.random.choice([10, 200, 300]))
    # Sometimes open more channels than channel_max allows.
    if stranger.random.random() < 0.05:
        await stranger.say(
            b"".join(method_frame(number, ChannelOpen()) for number in range(301, 2400))
        )


async def half_a_message(stranger: Stranger) -> None:
    await stranger.log_in()
    size = stranger.random.choice([10, 100_000, 1 << 27])
    await stranger.say(
        method_frame(1, BasicPublish(b"", b"q")),
        header_frame(1, size, PERSISTENT),
        frame(BODY, 1, b"abc"),
    )


async def leaves_things_behind(stranger: Stranger) -> None:
    await stranger.log_in(3)
    for number in range(1, 4):
        queue = b"left-%d" % stranger.random.getrandbits(60)
        await stranger.say(
            method_frame(number, QueueDeclare(queue, exclusive=True)),
            method_frame(number, BasicConsume(queue, b"c")),
            method_frame(number, BasicPublish(b"", queue)),
            header_frame(number, 5),
            frame(BODY, number, b"hello"),
        )


async def connects_and_waits(stranger: Stranger) -> None:
    await asyncio.sleep(PATIENCE_S)


MANNERS: list[Callable[[Stranger], Awaitable[None]]] = [
    garbage,
    garbage_after_header,
    garbage_after_login,
    half_a_header,
    half_a_handshake,
    http,
    tls,
    wrong_password,
    unknown_mechanism,
    oversized_frame,
    wrong_channel,
    content_out_of_place,
    no_end_octet,
    unknown_methods,
    torn_arguments,
    huge_table,
    slow_sender,
    never_reads,
    many_channels,
    half_a_message,
    leaves_things_behind,
    connects_and_waits,
]


async def visit(host: str, port: int, count: int, at_once: int, seed: int) -> dict[str, int]:
    """Run `count` strangers, `at_once` at a time; return the number of finished ones by kind."""
    gate = asyncio.Semaphore(at_once)
    done: dict[str, int] = {}

    async def one(number: int) -> None:
        manner = MANNERS[number % len(MANNERS)]
        async with gate:
            reader, writer = await asyncio.open_connection(host, port)
            stranger = Stranger(reader, writer, seed + number)
            try:
                await manner(stranger)
                if stranger.random.random() < 0.5:
                    await stranger.listen()
            except ConnectionError:
                # The broker may close the connection while the stranger still sends.
                pass
            finally:
                if stranger.random.random() < 0.5:
                    # Half of the strangers end with a reset (RST) instead of a FIN.
                    sock = writer.get_extra_info("socket")
                    if sock is not None and sock.fileno() >= 0:
                        sock.setsockopt(
                            socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
                        )
                writer.close()
        done[manner.__name__] = done.get(manner.__name__, 0) + 1

    await asyncio.gather(*(one(number) for number in range(count)))
    return done
