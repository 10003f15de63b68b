"""Serves a `KeyStore` on loopback, by the part of HTTP that `EtcdGateway` needs.

Whoever learns of a revision can rely on it. So every reply waits until all changes so far are on
the disk: a thread writes what has gathered while the last write was under way, as one transaction,
and then all that waited for it are answered and told.

Any user of the machine may connect. A login with the user and password of this run is needed.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import secrets
from contextlib import suppress
from typing import Final

from warrenmq.cluster.key_store import requests
from warrenmq.cluster.key_store.disk import KeyStoreError, KeyStoreFile
from warrenmq.cluster.key_store.requests import RequestError, WatchedRange
from warrenmq.cluster.key_store.store import TooOld, Write
from warrenmq.cluster.metadata.operations import Event

logger = logging.getLogger("warren.cluster")

USER: Final = "warren"
_HOST: Final = "127.0.0.1"
_LOGIN: Final = "/v3/auth/authenticate"
_WATCH: Final = "/v3/watch"
# A renewal tells nothing that could be undone, and must not wait for a slow disk.
_RENEWAL: Final = "/v3/lease/keepalive"
# Interval of the expiry of leases (s).
_EXPIRY_S: Final = 0.5
# Interval of the signs of life on a watch (s). A client opens one anew that is silent for 3 s.
_SIGN_S: Final = 1.0
# Unread bytes at which a watch is ended: its client stands still, and can watch again later.
_UNREAD_MAX: Final = 64 << 20
# Longest body of a request without a token: a login (bytes).
_LOGIN_BYTES: Final = 4096
# Longest head of a request (bytes).
_HEAD_BYTES: Final = 65_536


class _Watcher:
    """A watch of one client; `writer` takes the lines."""

    def __init__(self, writer: asyncio.StreamWriter, wanted: WatchedRange) -> None:
        self.writer = writer
        self._wanted = wanted

    def tell(self, revision: int, events: list[Event]) -> None:
        """Send the client the events of one revision whose keys are in its range."""
        wanted = self._wanted
        found = [each for each in events if wanted.key <= each.kv.key < wanted.range_end]
        if found:
            self.send(requests.watch_line(revision, found))

    def send(self, line: bytes) -> None:
        """Send one line of JSON to the client."""
        self.writer.write(b"%x\r\n%b\r\n" % (len(line), line))
        if self.writer.transport.get_write_buffer_size() > _UNREAD_MAX:
            self.writer.transport.abort()


class KeyStoreServer:
    """The store in `file`, served from `start` to `stop`. Raises KeyStoreError."""

    def __init__(self, file: KeyStoreFile) -> None:
        self.password = secrets.token_urlsafe(32)
        self._token = secrets.token_urlsafe(32)
        self._file = file
        self._store = file.load()
        # Whether the store has changes that the disk has refused; nobody may learn of them.
        self._is_spoilt = False
        self._server: asyncio.Server | None = None
        self._expiring: asyncio.Task[None] | None = None
        self._connections: dict[asyncio.Task[None], asyncio.StreamWriter] = {}
        self._watchers: set[_Watcher] = set()
        # The newest revision that is on the disk.
        self._written = self._store.revision
        self._writing: asyncio.Task[None] | None = None
        # Replies that wait for the next write.
        self._waiting: list[asyncio.Future[None]] = []

    async def start(self) -> str:
        """Listen for HTTP on a free port of 127.0.0.1; returns the URL. Raises OSError."""
        self._server = await asyncio.start_server(self._serve, _HOST, 0, limit=_HEAD_BYTES)
        self._expiring = asyncio.create_task(self._expire())
        host, port = self._server.sockets[0].getsockname()
        return f"http://{host}:{port}"

    async def stop(self) -> None:
        """End all connections and close the file."""
        assert self._server is not None and self._expiring is not None
        self._server.close()
        self._expiring.cancel()
        connections = list(self._connections)
        for writer in self._connections.values():
            writer.transport.abort()
        await asyncio.gather(self._expiring, *connections, return_exceptions=True)
        if self._writing is not None:
            await self._writing
        self._file.close()

    # -- connections -------------------------------------------------------------------------------

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections[task] = writer
        try:
            while await self._serve_request(reader, writer):
                await writer.drain()
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError):
            # The client has left, or does not speak HTTP.
            pass
        finally:
            del self._connections[task]
            writer.transport.abort()

    async def _serve_request(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        """Answer one request; False if the connection is to end."""
        head = await reader.readuntil(b"\r\n\r\n")
        request, *lines = head.decode("latin-1").split("\r\n")
        path = request.split(" ")[1] if request.count(" ") == 2 else ""
        fields = {name.strip().lower(): each.strip() for name, _, each in map(_field, lines)}
        length = int(fields.get("content-length", "0"))
        is_known = _is_same(fields.get("authorization", ""), self._token)
        try:
            # A request without a token takes no memory. It is read to its end, or the client would
            # not get its answer.
            if length > (requests.REQUEST_BYTES_MAX if is_known else _LOGIN_BYTES):
                await _skip(reader, length)
                raise RequestError("etcdserver: request is too large", requests.INVALID)
            body = await reader.readexactly(length)
            if path == _LOGIN:
                reply = self._log_in(body)
            elif not is_known:
                raise RequestError("etcdserver: invalid auth token", requests.UNAUTHENTICATED)
            elif path == _WATCH:
                await self._watch(requests.decoded_watch(body), reader, writer)
                return False
            else:
                self._restore()
                now_s = asyncio.get_running_loop().time()
                reply = requests.answer(self._store, path, body, now_s)
                if path != _RENEWAL:
                    await self._settled()
        except RequestError as error:
            status, reply = requests.STATUS_OF[error.code], error.as_json()
        else:
            status = 200
        writer.write(
            b"HTTP/1.1 %d -\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"
            % (status, len(reply), reply)
        )
        return True

    def _log_in(self, body: bytes) -> bytes:
        login = requests.decoded_login(body)
        if login.name != USER or not _is_same(login.password, self.password):
            text = "etcdserver: authentication failed, invalid user ID or password"
            raise RequestError(text, requests.INVALID)
        return b'{"token":"%b"}' % self._token.encode()

    # -- watches -----------------------------------------------------------------------------------

    async def _watch(
        self, wanted: WatchedRange, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Send a watch's client each change of its keys until it disconnects."""
        self._restore()
        await self._settled()
        writer.write(
            b"HTTP/1.1 200 -\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
        )
        watcher = _Watcher(writer, wanted)
        # From here to the end of the history nothing waits: no event can come in between.
        watcher.send(requests.watch_line(self._written, is_created=True))
        first = wanted.start_revision or self._written + 1
        try:
            past = self._store.events_since(wanted.key, wanted.range_end, first, self._written)
        except TooOld as error:
            watcher.send(requests.compacted_line(error.revision))
            await writer.drain()
            return
        for events in past:
            watcher.tell(events[0].kv.mod_revision, events)
        self._watchers.add(watcher)
        try:
            while True:
                with suppress(TimeoutError):
                    async with asyncio.timeout(_SIGN_S):
                        await reader.read(1)
                        return
                watcher.send(requests.watch_line(self._written))
        finally:
            self._watchers.discard(watcher)

    # -- the disk ----------------------------------------------------------------------------------

    async def _settled(self) -> None:
        """Return when all changes so far are on the disk. Raises RequestError."""
        if not self._store.unwritten and self._writing is None:
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        if self._writing is None:
            self._writing = asyncio.create_task(self._write())
        await waiter

    async def _write(self) -> None:
        """Write the gathered changes to the disk, batch after batch, until no reply waits."""
        while self._waiting or self._store.unwritten:
            # Changes of other requests in this turn of the loop join the same batch.
            await asyncio.sleep(0)
            waiting, self._waiting = self._waiting, []
            writes, self._store.unwritten = self._store.unwritten, []
            revision = self._store.revision
            try:
                if writes:
                    await asyncio.to_thread(self._file.write, writes, revision)
            except KeyStoreError as error:
                self._undo(error, waiting)
            else:
                self._written = revision
                self._tell(writes)
                for each in waiting:
                    if not each.done():
                        each.set_result(None)
        self._writing = None

    def _undo(self, error: KeyStoreError, waiting: list[asyncio.Future[None]]) -> None:
        """Drop changes that are not on the disk; no client was told of them."""
        logger.error("the definitions of the cluster cannot be stored: %s", error)
        self._is_spoilt = True
        self._store.unwritten = []
        for watcher in list(self._watchers):
            watcher.writer.transport.abort()
        waiting, self._waiting = waiting + self._waiting, []
        for each in waiting:
            if not each.done():
                each.set_exception(RequestError(f"etcdserver: {error}", requests.UNAVAILABLE))

    def _restore(self) -> None:
        """Take the store from the disk again if this one is spoilt. Raises RequestError."""
        if not self._is_spoilt:
            return
        try:
            self._store = self._file.load()
        except KeyStoreError as error:
            raise RequestError(f"etcdserver: {error}", requests.UNAVAILABLE) from None
        self._written = self._store.revision
        self._is_spoilt = False

    def _tell(self, writes: list[Write]) -> None:
        """Send the watchers the events among `writes`, those of a revision together."""
        by_revision: dict[int, list[Event]] = {}
        for each in writes:
            if isinstance(each, Event):
                by_revision.setdefault(each.kv.mod_revision, []).append(each)
        for revision, events in by_revision.items():
            for watcher in list(self._watchers):
                watcher.tell(revision, events)

    # -- leases ------------------------------------------------------------------------------------

    async def _expire(self) -> None:
        """End leases whose time is over; runs until it is cancelled."""
        loop = asyncio.get_running_loop()
        due_s = loop.time()
        while True:
            due_s += _EXPIRY_S
            await asyncio.sleep(due_s - loop.time())
            late_s = loop.time() - due_s
            if late_s > _EXPIRY_S:
                # This process was stopped for a while: renewals of leases wait in the sockets.
                self._store.extend(late_s)
                due_s = loop.time()
            with suppress(RequestError):
                self._restore()
                self._store.expire(loop.time())
                await self._settled()


def _field(line: str) -> tuple[str, str, str]:
    return line.partition(":")


async def _skip(reader: asyncio.StreamReader, size: int) -> None:
    """Read `size` bytes and drop them."""
    while size > 0:
        size -= len(await reader.readexactly(min(size, _HEAD_BYTES)))


def _is_same(given: str, known: str) -> bool:
    return hmac.compare_digest(given.encode(), known.encode())
