"""Requests to an etcd cluster by HTTP: any of its members, a login, TLS and deadlines.

Etcd's gateway serves its gRPC interface as JSON: a request is a POST, bytes are base64, zero values
are left out, and an error is an object with a message and a gRPC code.
"""

import ssl
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec
import urllib3
from urllib3.exceptions import (
    ConnectTimeoutError,
    HTTPError,
    LocationParseError,
    NewConnectionError,
    ReadTimeoutError,
    SSLError,
)

from warrenmq.cluster.metadata.errors import Compacted, EtcdRefused, EtcdUnavailable, LeaseGone

CONNECT_S: Final = 1.0
REQUEST_S: Final = 5.0
# Patience with a request that may be asked once only: etcd loses one that waits in a member while
# the leader dies, so its author must have time to try again.
SINGLE_S: Final = 2.0
# Pause before members that elect a leader are asked again (s).
ELECTION_PAUSE_S: Final = 0.1
# With this header a member without a leader refuses requests. Without it requests wait, and
# watches hear nothing, at a member that is cut off from the others.
LEADER_HEADERS: Final = {"Grpc-Metadata-hasleader": "true"}
NO_LEADER: Final = "etcdserver: no leader"

# gRPC's codes of errors, as far as they decide what happens.
_NOT_FOUND: Final = 5
_RESOURCE_EXHAUSTED: Final = 8
_OUT_OF_RANGE: Final = 11
_UNAUTHENTICATED: Final = 16
# Cancelled, unknown, deadline exceeded, internal, unavailable: the answer says nothing for sure.
_UNDECIDED: Final = (1, 2, 4, 13, 14)

# Undecided errors after which a member has done nothing.
_NOTHING_DONE: Final = (NO_LEADER, "etcdserver: too many requests")
# A new login replaces a token that has expired or was lost in a restart of the member (these have
# a code of their own), one older than a change of etcd's users, and the lack of one.
_TOKEN_TEXTS: Final = ("revision of auth store is old", "user name is empty")
_AUTH_IS_OFF: Final = "authentication is not enabled"


@dataclass(frozen=True)
class Credentials:
    """A user of etcd."""

    user: str
    password: str = field(repr=False)


@dataclass(frozen=True)
class TlsFiles:
    """PEM files for TLS: who signs etcd's certificate (None: the system's list), and ours."""

    authority: Path | None = None
    certificate: Path | None = None
    key: Path | None = None


class _ErrorReply(msgspec.Struct):
    """An error of a single reply."""

    message: str
    code: int


class StreamError(msgspec.Struct):
    """An error of a running reply, or in its place."""

    message: str
    grpc_code: int


class _StreamErrorReply(msgspec.Struct):
    error: StreamError


class _Login(msgspec.Struct):
    token: str


class TokenRefused(EtcdRefused):
    """The member does not accept the token; a new login may help."""


class Endpoints:
    """The members of one etcd cluster, by their URLs; all methods may be called by any thread.

    Raises ValueError for a malformed URL, EtcdRefused for unreadable files of TLS.
    """

    def __init__(
        self,
        urls: Sequence[str],
        credentials: Credentials | None = None,
        tls: TlsFiles | None = None,
    ) -> None:
        if not urls:
            raise ValueError("etcd needs at least one URL")
        self._urls = tuple(urls)
        self._pools = self._new_pools(tls)
        self._credentials = credentials
        # The member that is asked first, as an index of `_pools`: it gave the last answer.
        self._preferred = 0
        # Guards the token; held during a login, so that many threads need one login.
        self._login_lock = threading.Lock()
        # None before a login; "" if etcd has its authentication off.
        self._token: str | None = None

    def reload_tls(self, tls: TlsFiles) -> None:
        """Read the files anew for later connections; calls and streams under way keep theirs.

        Raises EtcdRefused for unreadable files, and changes nothing then.
        """
        # The connections of the old pools end with the last call that uses them.
        self._pools = self._new_pools(tls)

    def _new_pools(self, tls: TlsFiles | None) -> list[urllib3.HTTPConnectionPool]:
        context = None if tls is None else _ssl_context(tls)
        return [_pool(url, context) for url in self._urls]

    def close(self) -> None:
        """Close the connections; calls under way finish first."""
        for pool in self._pools:
            pool.close()

    def call(
        self, path: str, request: object, is_repeatable: bool = True, needs_leader: bool = True
    ) -> bytes:
        """The reply to `request`, from the first member that gives one within REQUEST_S.

        Each member is asked once, and again as long as they elect a leader, unless `needs_leader`
        is off. A request that is not repeatable goes to one member only; EtcdUnavailable then says
        whether its outcome is unknown. Repeatable ones raise it with the outcome known: a read does
        nothing. Also raises EtcdRefused and Compacted.
        """
        body = msgspec.json.encode(request)
        headers = LEADER_HEADERS if needs_leader else {}
        deadline = time.monotonic() + REQUEST_S
        while True:
            failures: list[EtcdUnavailable] = []
            members = self._in_order()
            for number, member in enumerate(members):
                left_s = deadline - time.monotonic()
                # A member that accepts requests and never answers must leave time for the others.
                patience_s = left_s / (len(members) - number)
                if not is_repeatable:
                    patience_s = min(left_s, SINGLE_S)
                if patience_s <= 0:
                    break
                try:
                    reply = self._ask(member, path, body, headers, patience_s)
                except EtcdUnavailable as error:
                    self._avoid(member)
                    if error.is_outcome_unknown and not is_repeatable:
                        raise
                    failures.append(error)
                else:
                    self._preferred = member
                    return reply
            is_electing = any(NO_LEADER in str(error) for error in failures)
            if not is_electing or time.monotonic() + ELECTION_PAUSE_S > deadline:
                text = "; ".join(str(error) for error in failures)
                raise EtcdUnavailable(text, is_outcome_unknown=False)
            time.sleep(ELECTION_PAUSE_S)

    def open_stream(self, path: str, request: object, silence_s: float) -> urllib3.BaseHTTPResponse:
        """The running reply of the preferred member; a silence of `silence_s` breaks it.

        After EtcdUnavailable the next call asks another member. The caller closes the reply. A
        silence raises EtcdUnavailable here, and urllib3's ReadTimeoutError while reading.
        """
        body = msgspec.json.encode(request)
        member = self._preferred
        try:
            return self._ask_with_token(member, path, body, LEADER_HEADERS, silence_s)
        except EtcdUnavailable:
            self._avoid(member)
            raise

    def leave_preferred(self) -> None:
        """Ask another member first from now on: a stream of the preferred one broke."""
        self._avoid(self._preferred)

    def forget_token(self) -> None:
        """Log in again at the next request."""
        self._token = None

    def _in_order(self) -> list[int]:
        count = len(self._pools)
        return [(self._preferred + step) % count for step in range(count)]

    def _avoid(self, member: int) -> None:
        if self._preferred == member:
            self._preferred = (member + 1) % len(self._pools)

    def _ask(
        self, member: int, path: str, body: bytes, headers: dict[str, str], patience_s: float
    ) -> bytes:
        response = self._ask_with_token(member, path, body, headers, patience_s)
        try:
            return response.read()
        except HTTPError as error:
            raise self._unavailable(member, error) from None
        finally:
            response.release_conn()

    def _ask_with_token(
        self, member: int, path: str, body: bytes, headers: dict[str, str], patience_s: float
    ) -> urllib3.BaseHTTPResponse:
        """Send a request, with a new login if the member does not accept the token."""
        for is_last in (False, True):
            token = self._current_token(member, patience_s)
            try:
                return self._send(member, path, body, _with_token(headers, token), patience_s)
            except TokenRefused as error:
                if is_last or self._credentials is None:
                    raise EtcdRefused(f"etcd refuses the request: {error}") from None
                with self._login_lock:
                    if self._token == token:
                        self._token = None
        raise AssertionError("the last attempt returns or raises")

    def _current_token(self, member: int, patience_s: float) -> str:
        if self._credentials is None:
            return ""
        with self._login_lock:
            if self._token is None:
                self._token = self._log_in(member, self._credentials, patience_s)
            return self._token

    def _log_in(self, member: int, credentials: Credentials, patience_s: float) -> str:
        body = msgspec.json.encode({"name": credentials.user, "password": credentials.password})
        try:
            response = self._send(member, "/v3/auth/authenticate", body, {}, patience_s)
        except EtcdRefused as error:
            # An etcd without authentication serves everybody; etcd's own client goes on, too.
            if _AUTH_IS_OFF in str(error):
                return ""
            raise
        except EtcdUnavailable as error:
            # The request itself was not sent yet.
            raise EtcdUnavailable(str(error), is_outcome_unknown=False) from None
        try:
            return msgspec.json.decode(response.read(), type=_Login).token
        except (HTTPError, msgspec.DecodeError) as error:
            raise EtcdUnavailable(self._failure(member, error), is_outcome_unknown=False) from None
        finally:
            response.release_conn()

    def _send(
        self, member: int, path: str, body: bytes, headers: dict[str, str], patience_s: float
    ) -> urllib3.BaseHTTPResponse:
        """The reply of one member, its body unread; raises the error that it is."""
        timeout = urllib3.Timeout(connect=min(CONNECT_S, patience_s), read=patience_s)
        try:
            response = self._pools[member].urlopen(
                "POST", path, body, {"Content-Type": "application/json", **headers}, retries=False,
                redirect=False, timeout=timeout, preload_content=False,
            )  # fmt: skip
        except HTTPError as error:
            raise self._unavailable(member, error) from None
        if response.status == 200:
            return response
        try:
            text = response.read()
        except HTTPError as error:
            raise self._unavailable(member, error) from None
        finally:
            response.release_conn()
        raise self._error_of_reply(member, response.status, text)

    def _error_of_reply(self, member: int, status: int, text: bytes) -> Exception:
        try:
            if b'"grpc_code"' in text:
                error = msgspec.json.decode(text, type=_StreamErrorReply).error
                return self._named(member, error_of(error.message, error.grpc_code))
            reply = msgspec.json.decode(text, type=_ErrorReply)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            failure = f"{self._url(member)} answers {status}, not as etcd does"
            return EtcdUnavailable(failure, is_outcome_unknown=True)
        return self._named(member, error_of(reply.message, reply.code))

    def _named(self, member: int, error: Exception) -> Exception:
        """The error with the member's URL, if another member might answer otherwise."""
        if isinstance(error, EtcdUnavailable):
            return EtcdUnavailable(f"{self._url(member)}: {error}", error.is_outcome_unknown)
        return error

    def _unavailable(self, member: int, error: HTTPError) -> EtcdUnavailable:
        return EtcdUnavailable(self._failure(member, error), not _is_unsent(error))

    def _failure(self, member: int, error: Exception) -> str:
        return f"{self._url(member)}: {_reason(error)}"

    def _url(self, member: int) -> str:
        pool = self._pools[member]
        return f"{pool.scheme}://{pool.host}:{pool.port}"


def error_of(message: str, code: int) -> Exception:
    """The exception for etcd's error with gRPC's `code`."""
    if code == _UNAUTHENTICATED or any(text in message for text in _TOKEN_TEXTS):
        return TokenRefused(message)
    if message in _NOTHING_DONE:
        return EtcdUnavailable(message, is_outcome_unknown=False)
    if code in _UNDECIDED:
        return EtcdUnavailable(message, is_outcome_unknown=True)
    if code == _OUT_OF_RANGE and "compacted" in message:
        return Compacted(message)
    if code == _NOT_FOUND and "lease" in message:
        return LeaseGone(message)
    refused = EtcdRefused(message)
    refused.may_be_full = code == _RESOURCE_EXHAUSTED
    return refused


def _with_token(headers: dict[str, str], token: str) -> dict[str, str]:
    return {**headers, "Authorization": token} if token else headers


def _ssl_context(tls: TlsFiles) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=tls.authority)
        if tls.certificate is not None:
            context.load_cert_chain(tls.certificate, tls.key)
    except (OSError, ssl.SSLError) as error:
        names = ", ".join(str(path) for path in (tls.authority, tls.certificate, tls.key) if path)
        raise EtcdRefused(f"TLS for etcd with {names}: {_one_line(error)}") from None
    return context


def _pool(url: str, context: ssl.SSLContext | None) -> urllib3.HTTPConnectionPool:
    try:
        parsed = urllib3.util.parse_url(url)
    except LocationParseError:
        parsed = urllib3.util.Url()
    if parsed.scheme not in ("http", "https") or not parsed.host or parsed.path not in (None, "/"):
        raise ValueError(f"a URL of etcd is http://HOST:PORT or https://HOST:PORT, not {url!r}")
    port = parsed.port or 2379
    if parsed.scheme == "http":
        return urllib3.HTTPConnectionPool(parsed.host, port, maxsize=8)
    return urllib3.HTTPSConnectionPool(
        parsed.host, port, maxsize=8, ssl_context=context or ssl.create_default_context()
    )


def _is_unsent(error: HTTPError) -> bool:
    """Whether the request never left: there was no connection, or no trust in the other side."""
    if isinstance(error, SSLError):
        return isinstance(error.args[0], ssl.SSLCertVerificationError)
    return isinstance(error, ConnectTimeoutError | NewConnectionError)


def _reason(error: BaseException) -> str:
    """Why a connection failed, in one line, without the names of Python's objects."""
    if isinstance(error, ConnectTimeoutError) and not isinstance(error, NewConnectionError):
        return f"no connection within {CONNECT_S:g} s"
    if isinstance(error, ReadTimeoutError):
        return "no answer in time"
    cause = error.__cause__ or next(
        (part for part in error.args if isinstance(part, BaseException)), None
    )
    if cause is not None:
        return _reason(cause)
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return _one_line(error)


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())
