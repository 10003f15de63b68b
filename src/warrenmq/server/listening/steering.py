"""Hands clients over between the workers of one machine: the socket itself, and what goes with it.

A worker that has found out (`guide.py`) that another one has the client's queue passes the socket
on, with the frames that the client has sent so far. The other worker feeds them to a new connection
and drops what that answers, as the client has these answers. The client notices nothing.

Messages go through the supervisor, which has a pair of sockets with each worker. One message is one
client; what has no place in one stays where it is.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Callable
from typing import Final

import msgspec

from warrenmq.server.listening.addresses import Ends, ends_of
from warrenmq.server.listening.guide import Guide

logger = logging.getLogger("warren.listener")

# Longest message (bytes); the system takes a little more at a time.
MESSAGE_BYTES_MAX: Final = 131_072


class Handover(msgspec.Struct, array_like=True):
    """A client for the worker `number`.

    `replay`: what it has sent, as far as a connection consists of it; `rest`: what comes next;
    `last_queues`: the queue that a channel knows as "", by channel.
    """

    number: int
    replay: bytes
    rest: bytes
    last_queues: dict[int, bytes]


class Steering:
    """This worker's side; `descriptor` is of the socket to the supervisor.

    `workers`: the numbers of the other workers by their names.
    """

    def __init__(self, descriptor: int, workers: dict[bytes, int]) -> None:
        self._socket = socket.socket(fileno=descriptor)
        self._socket.setblocking(False)
        self._workers = workers
        self._tasks: set[asyncio.Task[object]] = set()

    def guide(self) -> Guide:
        """A guide that finds out which worker a new client belongs to."""
        return Guide(self._workers)

    def hand_over(self, client: int, handover: Handover) -> bool:
        """Send the socket `client` (a descriptor) to its worker; False: the client stays here."""
        message = msgspec.msgpack.encode(handover)
        if len(message) > MESSAGE_BYTES_MAX:
            return False
        try:
            socket.send_fds(self._socket, [message], [client])
        except OSError:
            return False
        return True

    def start(
        self,
        loop: asyncio.AbstractEventLoop,
        new_protocol: Callable[[Ends, Handover], asyncio.BufferedProtocol],
    ) -> None:
        """Take clients from other workers; `new_protocol` makes the protocol of one."""
        loop.add_reader(self._socket, self._take, loop, new_protocol)

    def stop(self, loop: asyncio.AbstractEventLoop) -> None:
        """Take no more clients."""
        loop.remove_reader(self._socket)
        self._socket.close()

    def _take(
        self,
        loop: asyncio.AbstractEventLoop,
        new_protocol: Callable[[Ends, Handover], asyncio.BufferedProtocol],
    ) -> None:
        try:
            message, descriptors, _, _ = socket.recv_fds(self._socket, MESSAGE_BYTES_MAX, 1)
        except BlockingIOError:
            return
        if not message:
            # The supervisor has ended.
            loop.remove_reader(self._socket)
            return
        if not descriptors:
            logger.error("a client of another worker is dropped: too many open files")
            return
        client = socket.socket(fileno=descriptors[0])
        client.setblocking(False)
        try:
            ends = ends_of(client)
        except OSError:
            # The client has left meanwhile.
            client.close()
            return
        handover = msgspec.msgpack.decode(message, type=Handover)
        task: asyncio.Task[object] = loop.create_task(
            _connect(loop, client, lambda: new_protocol(ends, handover))
        )
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def _connect(
    loop: asyncio.AbstractEventLoop,
    client: socket.socket,
    new_protocol: Callable[[], asyncio.BufferedProtocol],
) -> None:
    await loop.connect_accepted_socket(new_protocol, client)


class Relay:
    """The supervisor's side: sockets to all workers, and messages from one to another."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._sockets: dict[int, socket.socket] = {}

    def open(self, number: int) -> int:
        """Make a socket pair for a worker that is about to start; returns the worker's descriptor.

        The caller closes it when the worker has it.
        """
        self.close(number)
        own, of_worker = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        own.setblocking(False)
        self._sockets[number] = own
        self._loop.add_reader(own, self._pass_on, number, own)
        return of_worker.detach()

    def close(self, number: int) -> None:
        """Close the socket of a worker that has ended; clients on their way to it are dropped."""
        own = self._sockets.pop(number, None)
        if own is not None:
            self._loop.remove_reader(own)
            own.close()

    def _pass_on(self, number: int, own: socket.socket) -> None:
        try:
            message, descriptors, _, _ = socket.recv_fds(own, MESSAGE_BYTES_MAX, 1)
        except BlockingIOError:
            return
        except OSError:
            message, descriptors = b"", []
        if not message:
            self.close(number)
            return
        handover = msgspec.msgpack.decode(message, type=Handover)
        target = self._sockets.get(handover.number)
        try:
            if target is not None and descriptors:
                socket.send_fds(target, [message], descriptors)
        except OSError as error:
            # The client finds its connection closed, as if its worker had ended.
            logger.warning("a client for worker %d is dropped: %s", handover.number, error)
        finally:
            for each in descriptors:
                os.close(each)
