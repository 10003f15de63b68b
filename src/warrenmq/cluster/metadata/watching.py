"""A watch of etcd's keys that outlives its connections.

The reply to a watch never ends. It has one JSON object a line, and the first says that the watch is
there. Etcd 3.4 sends nothing while nothing changes, so a connection whose other end has died or is
frozen looks like an idle one. Therefore a watch that heard nothing for SILENCE_S opens itself anew,
from the next revision on. A member that serves it answers at once, otherwise another member is
asked. Nothing is lost or repeated by that, since etcd sends all events of a revision in one object.

A member may need longer than that to send a revision of very many events. So a silent member whose
revision says that it may have something to send gets twice the time at the next opening, up to
SILENCE_MAX_S; in an etcd to which others write too, that is the case all the time.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import groupby
from typing import Final

import msgspec
import urllib3
from urllib3.exceptions import HTTPError, ReadTimeoutError

from warrenmq.cluster.metadata.endpoints import (
    Endpoints,
    StreamError,
    TokenRefused,
    error_of,
)
from warrenmq.cluster.metadata.errors import (
    Compacted,
    EtcdRefused,
    EtcdUnavailable,
    RevisionsLost,
)
from warrenmq.cluster.metadata.operations import Event, end_of

SILENCE_S: Final = 3.0
SILENCE_MAX_S: Final = 24.0
# Pause before the next member is asked, after a failure (s).
PAUSE_S: Final = 0.2


class StopSignal:
    """Ends a watch from another thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._event = threading.Event()
        # The reply that the watch reads.
        self._response: urllib3.BaseHTTPResponse | None = None

    def set(self) -> None:
        """End the watch; it has ended when its `watch` returns."""
        with self._lock:
            self._event.set()
            if self._response is not None:
                _break(self._response)

    def is_set(self) -> bool:
        """Whether the watch is to end."""
        return self._event.is_set()

    def wait(self, timeout_s: float) -> None:
        """Wait `timeout_s`, or less if the watch is to end."""
        self._event.wait(timeout_s)

    @contextmanager
    def reading(self, response: urllib3.BaseHTTPResponse) -> Iterator[None]:
        """Let `set` break the reading of `response`, which is closed afterwards."""
        with self._lock:
            self._response = response
            if self.is_set():
                _break(response)
        try:
            yield
        finally:
            with self._lock:
                self._response = None
            response.close()
            response.release_conn()


def _break(response: urllib3.BaseHTTPResponse) -> None:
    # A reply that has ended has no connection any more, which is an error of either kind.
    with suppress(RuntimeError, ValueError):
        response.shutdown()


class _Header(msgspec.Struct):
    revision: int = 0


class _Result(msgspec.Struct):
    header: _Header = msgspec.field(default_factory=_Header)
    created: bool = False
    canceled: bool = False
    cancel_reason: str = ""
    compact_revision: int = 0
    events: list[Event] = []


class _Line(msgspec.Struct):
    result: _Result = msgspec.field(default_factory=_Result)
    error: StreamError | None = None


class Watch:
    """A watch of the keys with `prefix`, from `next_revision` on; it runs once.

    `revision` reads the store's revision, for a user who may read the key.
    """

    def __init__(
        self,
        endpoints: Endpoints,
        prefix: bytes,
        next_revision: int,
        revision: Callable[[bytes], int],
    ) -> None:
        self._endpoints = endpoints
        self._prefix = prefix
        self._next_revision = next_revision
        self._revision = revision
        # How long the next opening may be silent.
        self._silence_s = SILENCE_S
        # Whether the member may have events to send that it has not sent yet.
        self._is_behind = False
        # Refusals of the user since the watch last stood; a token may have expired, so the first
        # one is answered with a new login.
        self._refusals_count = 0

    def run(self, on_events: Callable[[int, list[Event]], None], stop: StopSignal) -> None:
        """Watch until `stop` is set; see `EtcdGateway.watch`."""
        while not stop.is_set():
            try:
                response = self._open()
                with stop.reading(response):
                    for events in self._read(response):
                        self._pass_on(events, on_events)
            except EtcdUnavailable:
                self._silence_s = SILENCE_S
                stop.wait(PAUSE_S)

    def _open(self) -> urllib3.BaseHTTPResponse:
        request = {
            "create_request": {
                "key": self._prefix,
                "range_end": end_of(self._prefix),
                "start_revision": self._next_revision,
            }
        }
        return self._endpoints.open_stream("/v3/watch", request, self._silence_s)

    def _read(self, response: urllib3.BaseHTTPResponse) -> Iterator[list[Event]]:
        """The events of `response`, in pieces; ends after a silence, raises when it breaks."""
        try:
            for line in _lines(response):
                result = self._result_of(line)
                if result.created:
                    self._is_behind = result.header.revision >= self._next_revision
                    self._check_revision(result.header.revision)
                if result.events:
                    self._is_behind = False
                    yield result.events
        except ReadTimeoutError:
            longer_s = min(2 * self._silence_s, SILENCE_MAX_S)
            self._silence_s = longer_s if self._is_behind else SILENCE_S
            return
        except HTTPError as error:
            self._endpoints.leave_preferred()
            raise EtcdUnavailable(f"a watch broke: {error}", False) from None
        self._endpoints.leave_preferred()
        raise EtcdUnavailable("a member ended a watch", False)

    def _result_of(self, line: bytes) -> _Result:
        """The result in a line, or the error that it is."""
        try:
            decoded = msgspec.json.decode(line, type=_Line, strict=False)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            self._endpoints.leave_preferred()
            raise EtcdUnavailable(
                f"a watch has a line that is not etcd's: {error}", False
            ) from None
        if decoded.error is not None:
            self._endpoints.leave_preferred()
            found = error_of(decoded.error.message, decoded.error.grpc_code)
            if isinstance(found, TokenRefused):
                self._refuse(decoded.error.message)
            raise found
        result = decoded.result
        if result.compact_revision:
            raise Compacted(
                f"etcd has compacted its history up to revision {result.compact_revision}; "
                f"revision {self._next_revision} was wanted"
            )
        if result.canceled:
            self._refuse(result.cancel_reason)
        return result

    def _refuse(self, reason: str) -> None:
        """Handle a refused watch: etcd says the same of an expired token and of a missing right."""
        self._endpoints.forget_token()
        self._refusals_count += 1
        if self._refusals_count > 1:
            raise EtcdRefused(f"etcd refuses the watch: {reason}")
        raise EtcdUnavailable(f"etcd refuses the watch: {reason}", False)

    def _check_revision(self, member_revision: int) -> None:
        """Tell a member that is behind from a store that lost what was seen before."""
        self._refusals_count = 0
        seen = self._next_revision - 1
        if member_revision < seen and (revision := self._revision(self._prefix)) < seen:
            raise RevisionsLost(f"etcd was at revision {seen} and is at {revision}")

    def _pass_on(self, events: list[Event], on_events: Callable[[int, list[Event]], None]) -> None:
        for revision, group in groupby(events, lambda event: event.kv.mod_revision):
            on_events(revision, list(group))
            self._next_revision = revision + 1


def _lines(response: urllib3.BaseHTTPResponse) -> Iterator[bytes]:
    """The lines of a reply as they come, without their ends."""
    parts: list[bytes] = []
    for chunk in response.read_chunked():
        *ended, rest = chunk.split(b"\n")
        for end in ended:
            yield b"".join([*parts, end])
            parts = []
        if rest:
            parts.append(rest)
