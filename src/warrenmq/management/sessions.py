"""Sessions with the node, each opened with the user and password of the HTTP request it serves.

Handlers run in a pool of threads, so the blocking client of the admin protocol serves them. A
session that is given back serves the next request of the same user for a few seconds, which spares
scripts and pages that ask often a login each time.
"""

import hashlib
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import quote

from warrenmq.admin.client.client import (
    REPLY_TIMEOUT_S,
    AdminClient,
    AdminRefusedError,
    NodeAddress,
    NodeUnreachableError,
)
from warrenmq.admin.protocol import requests
from warrenmq.admin.protocol.control import (
    ADMINISTRATOR,
    MANAGEMENT,
    MONITORING,
    POLICYMAKER,
    DescribeUser,
    List,
    Rows,
    UserDescription,
)
from warrenmq.management.errors import (
    HttpRefusal,
    bad_request,
    login_failed,
    not_authorised,
    not_found,
)
from warrenmq.vocabulary.error_codes import (
    ACCESS_REFUSED,
    NO_SUCH_USER,
    NO_SUCH_VHOST,
    NOT_FOUND,
    NOT_MIRRORED,
    STORAGE_FAILED,
    UNREACHABLE,
)

if TYPE_CHECKING:
    from pika.adapters.blocking_connection import BlockingChannel

# Sessions that wait for their user's next request.
_IDLE_MAX: Final = 32
# A session serves requests for so long (s): a password that is changed counts from then on.
_AGE_MAX_S: Final = 10.0
# Other nodes of the cluster have so long for a reply (s): one that hangs counts as running for some
# seconds, in which each request for all nodes waits for it.
_OTHERS_PATIENCE_S: Final = 5.0
# Passwords that are known to be right.
_KNOWN_MAX: Final = 10_000
# The node ends a session after a request that it cannot read, such as one with a name of more than
# 255 bytes; its reply is that to other bad requests.
_UNREADABLE: Final = 400
# Limits of an AMQP connection (s): to connect, and to wait while the node blocks it.
_AMQP_TIMEOUT_S: Final = 10.0

ReplyType = TypeVar("ReplyType", bound=requests.Reply)


class BrokenSession(HttpRefusal):
    """The session ended in the midst of a request."""


@dataclass(frozen=True)
class NodePlace:
    """Where the node is, found anew at each use: it may have started again elsewhere.

    `admin` returns an address for admin sessions and AMQP, whose user and password are of no
    account; it raises NodeUnreachableError.
    """

    admin: Callable[[], NodeAddress]


@dataclass
class _Session:
    """A logged-in session; `born` is the monotonic time of its login."""

    client: AdminClient
    born: float


class Sessions:
    """The sessions that are open with the node; safe for threads."""

    def __init__(self, place: NodePlace) -> None:
        self.place = place
        self._lock = threading.Lock()
        self._idle: dict[bytes, list[_Session]] = {}
        # Users with passwords that were right when they were used last, the oldest first.
        self._known: dict[bytes, None] = {}
        self._salt = secrets.token_bytes(16)

    @contextmanager
    def session(self, user: str, password: str, vhost: str = "") -> Iterator["Call"]:
        """A session of the user that nobody else has meanwhile; without a vhost for control only.

        Raises HttpRefusal.
        """
        key = self._key(user, password, vhost)
        session = self._take(key)
        call = (
            Call(self.log_in(user, password, vhost, self._node()))
            if session is None
            # The vhost may have been deleted and made anew since the session's login.
            else Call(session.client, lambda: self.log_in(user, password, vhost, self._node()))
        )
        born = time.monotonic() if session is None else session.born
        try:
            yield call
        except NodeUnreachableError as error:
            self._forget(key)
            raise BrokenSession(503, "service_unavailable", str(error)) from None
        except HttpRefusal as refused:
            if refused.status == _UNREADABLE:
                call.client.close()
            else:
                self._give_back(key, call, born)
            raise
        except BaseException:
            call.client.close()
            raise
        self._give_back(key, call, born)

    def _node(self) -> NodeAddress:
        try:
            return self.place.admin()
        except NodeUnreachableError as error:
            raise unreachable(error) from None

    def close(self) -> None:
        """Close the sessions that wait."""
        for key in list(self._idle):
            self._forget(key)

    def _forget(self, key: bytes) -> None:
        with self._lock:
            for session in self._idle.pop(key, []):
                session.client.close()

    def _key(self, user: str, password: str, vhost: str) -> bytes:
        text = f"{len(user)}:{len(vhost)}:{user}{vhost}{password}"
        return hashlib.sha256(self._salt + text.encode()).digest()

    def log_in(
        self,
        user: str,
        password: str,
        vhost: str,
        node: NodeAddress,
        patience_s: float = REPLY_TIMEOUT_S,
    ) -> AdminClient:
        """A new session with `node`, which the caller closes. Raises HttpRefusal."""
        key = self._key(user, password, "")
        try:
            client = AdminClient(_Login(node, user, password, vhost), "management", patience_s)
        except AdminRefusedError:
            with self._lock:
                self._known.pop(key, None)
            raise login_failed() from None
        except NodeUnreachableError as error:
            raise unreachable(error) from None
        with self._lock:
            self._known[key] = None
            if len(self._known) > _KNOWN_MAX:
                del self._known[next(iter(self._known))]
        return client

    def knows(self, user: str, password: str) -> bool:
        """Whether the password was right when it was used last."""
        return self._key(user, password, "") in self._known

    def _take(self, key: bytes) -> _Session | None:
        with self._lock:
            self._drop_old()
            sessions = self._idle.get(key)
            return sessions.pop() if sessions else None

    def _give_back(self, key: bytes, call: "Call", born: float) -> None:
        with self._lock:
            self._drop_old()
            if not call.is_ended and sum(map(len, self._idle.values())) < _IDLE_MAX:
                self._idle.setdefault(key, []).append(_Session(call.client, born))
            else:
                call.client.close()

    def _drop_old(self) -> None:
        oldest = time.monotonic() - _AGE_MAX_S
        for key, sessions in list(self._idle.items()):
            for session in sessions:
                if session.born < oldest:
                    session.client.close()
            kept = [session for session in sessions if session.born >= oldest]
            if kept:
                self._idle[key] = kept
            else:
                del self._idle[key]


class _Login(NodeAddress):
    """A node's address with the login of a caller; without a vhost for control operations only."""

    def __init__(self, node: NodeAddress, user: str, password: str, vhost: str) -> None:
        super().__init__(f"amqp://{node.where}")
        self.tls = node.tls
        self.user = user
        self.password = password
        self.vhost = vhost

    def login(self, client: str) -> requests.Request:
        """See NodeAddress."""
        return requests.Login(self.user, self.password, self.vhost, client)


@dataclass
class Caller:
    """Who sent an HTTP request, and the way to the node in that name.

    `peer` is the client's address. Tags and vhosts are those at the time of the request.
    """

    sessions: Sessions
    user: str
    password: str = field(repr=False)
    peer: str
    _description: UserDescription | None = field(default=None, repr=False)

    def call(self, request: requests.Request, expected: type[ReplyType]) -> ReplyType:
        """The node's reply to `request`. Raises HttpRefusal."""
        with self.session() as call:
            return call(request, expected)

    @contextmanager
    def session(self, vhost: str = "") -> Iterator["Call"]:
        """A session for several requests that belong together, as those of an import.

        Without a vhost it is for control operations only. Raises HttpRefusal.
        """
        with self.sessions.session(self.user, self.password, vhost) as call:
            yield call

    @contextmanager
    def session_at(self, node: NodeAddress, vhost: str) -> Iterator["Call"]:
        """A session with another node of the cluster. Raises HttpRefusal."""
        log_in = self.sessions.log_in
        with log_in(self.user, self.password, vhost, node, _OTHERS_PATIENCE_S) as client:
            try:
                yield Call(client)
            except NodeUnreachableError as error:
                raise unreachable(error) from None

    @property
    def description(self) -> UserDescription:
        """What the node says about the user, who is asked for once."""
        # A cached_property has one lock for all callers in Python 3.11, and this may take seconds.
        if self._description is None:
            self._description = self._described()
        return self._description

    def _described(self) -> UserDescription:
        try:
            return self.call(DescribeUser(), UserDescription)
        except BrokenSession:
            # The node has started again since the session's login.
            return self.call(DescribeUser(), UserDescription)

    @property
    def tags(self) -> list[str]:
        """The user's tags."""
        return self.description.tags

    def has_tag(self, tag: str) -> bool:
        """Whether the user has `tag`, or one that includes it."""
        return not _INCLUDED_IN[tag].isdisjoint(self.tags)

    def may_enter(self, vhost: str) -> bool:
        """Whether the user has any permissions in the vhost."""
        return vhost in self.description.vhosts

    def rows(
        self,
        what: Any,
        columns: list[str],
        vhost: str = "",
        user: str = "",
        names: list[str] | None = None,
    ) -> list[dict[str, Any]]:
        """The rows of a listing as objects with these columns. Raises HttpRefusal."""
        asked = List(what=what, columns=columns, vhost=vhost, user=user, names=names)
        reply = self.call(asked, Rows)
        return [dict(zip(columns, row, strict=True)) for row in reply.rows]

    @contextmanager
    def amqp(self, vhost: str) -> Iterator["BlockingChannel"]:
        """A channel in the vhost, for what AMQP alone can do; closed at the end.

        Raises HttpRefusal when there is no connection; pika's errors of the channel pass.
        """
        # Imported here, because the process starts faster without it.
        import pika
        from pika.exceptions import AMQPError, ProbableAccessDeniedError

        try:
            connection = pika.BlockingConnection(self._parameters(vhost))
        except ProbableAccessDeniedError:
            raise not_authorised("Access refused.") from None
        except (AMQPError, NodeUnreachableError, OSError) as error:
            raise unreachable(error) from None
        try:
            yield connection.channel()
        finally:
            if connection.is_open:
                connection.close()

    def _parameters(self, vhost: str) -> Any:
        import pika

        address = self.sessions.place.admin()
        parameters = pika.URLParameters(f"amqp://{address.where}/{quote(vhost, '')}")
        parameters.credentials = pika.PlainCredentials(self.user, self.password)
        parameters.socket_timeout = parameters.stack_timeout = _AMQP_TIMEOUT_S
        parameters.blocked_connection_timeout = _AMQP_TIMEOUT_S
        parameters.connection_attempts = 1
        if address.tls is not None:
            parameters.ssl_options = pika.SSLOptions(address.tls.ssl_context(), address.host)
        return parameters


@dataclass
class Call:
    """Sends requests in one session.

    `renew` logs in again: a session of an earlier request is refused if its vhost was deleted, and
    one of that name may be there now. Such a request is repeated once in a new session.
    """

    client: AdminClient
    renew: Callable[[], AdminClient] | None = None
    # Whether the node may have ended the session, as it does when the vhost is deleted.
    is_ended: bool = False

    def __call__(self, request: requests.Request, expected: type[ReplyType]) -> ReplyType:
        """The node's reply to `request`. Raises HttpRefusal, and NodeUnreachableError."""
        try:
            return self._ask(request, expected)
        except AdminRefusedError as error:
            raise refusal(error) from None

    def _ask(self, request: requests.Request, expected: type[ReplyType]) -> ReplyType:
        try:
            return self.client.request(request, expected)
        except AdminRefusedError as error:
            if error.code != NOT_FOUND:
                raise
            self.is_ended = True
            if self.renew is None:
                raise
        self.client.close()
        self.client, self.renew, self.is_ended = self.renew(), None, False
        return self._ask(request, expected)


# Tags that include another one (RabbitMQ's).
_INCLUDED_IN: Final[dict[str, frozenset[str]]] = {
    MANAGEMENT: frozenset({MANAGEMENT, POLICYMAKER, MONITORING, ADMINISTRATOR}),
    POLICYMAKER: frozenset({POLICYMAKER, ADMINISTRATOR}),
    MONITORING: frozenset({MONITORING, ADMINISTRATOR}),
    ADMINISTRATOR: frozenset({ADMINISTRATOR}),
}


def refusal(error: AdminRefusedError) -> HttpRefusal:
    """The reply for a request that the node has refused."""
    if error.code == ACCESS_REFUSED:
        return not_authorised("Access refused.")
    if error.code in (NOT_FOUND, NO_SUCH_VHOST, NO_SUCH_USER, NOT_MIRRORED):
        return not_found()
    if error.code in (UNREACHABLE, STORAGE_FAILED):
        return HttpRefusal(503, "service_unavailable", error.text)
    return bad_request(error.text)


def unreachable(error: Exception) -> HttpRefusal:
    """The reply while the node does not answer."""
    return HttpRefusal(503, "service_unavailable", str(error) or type(error).__name__)
