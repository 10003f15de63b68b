"""The handshake from connection.start to connection.open: login, limits, vhost (protocol 2).

STARTING -> TUNING -> OPENING -> RUNNING

After refused logins, the answer to a login may have to wait (`LoginGuard`). Then `take` returns
nothing, and `answer_login` gives the answer once `is_answer_due`.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from warrenmq import __version__
from warrenmq.broker.channel.client import Client
from warrenmq.broker.connection import states
from warrenmq.broker.connection.log import ConnectionLog
from warrenmq.broker.connection.tuning import check_tuned
from warrenmq.broker.definitions.access import Access
from warrenmq.broker.definitions.authentication import (
    EXTERNAL,
    check_mechanism,
    offered_mechanisms,
    plain_credentials,
)
from warrenmq.broker.definitions.limits import is_reached
from warrenmq.broker.definitions.login_attempts import AMQP
from warrenmq.broker.definitions.login_guard import source_address
from warrenmq.broker.definitions.settings import Settings
from warrenmq.broker.vhost.vhost import Vhost
from warrenmq.vocabulary.names import name_text
from warrenmq.vocabulary.rabbitmq_version import RABBITMQ_VERSION
from warrenmq.wire import errors, methods
from warrenmq.wire.field_table import Field, decode_table, encode_table, fields_from_python
from warrenmq.wire.field_types import TAG_BOOL, TAG_LONGSTR, TAG_TABLE
from warrenmq.wire.method import Method

NEVER: Final = -1

# Clients act on the server properties: kombu and Celery use a channel-wide prefetch only for
# product `RabbitMQ` from version 3.3 on, others parse the version as three numbers. So product and
# version name the behaviour that warren offers; `platform` and `information` name warren.
CAPABILITIES = (
    "publisher_confirms",
    "exchange_exchange_bindings",
    "basic.nack",
    "consumer_cancel_notify",
    "connection.blocked",
    "consumer_priorities",
    "authentication_failure_close",
    "per_consumer_qos",
    "direct_reply_to",
)


def server_properties(cluster_name: str) -> bytes:
    """The body of the server-properties table in connection.start."""
    capabilities: dict[str, object] = dict.fromkeys(CAPABILITIES, True)
    properties: dict[str, object] = {
        "capabilities": capabilities,
        "cluster_name": cluster_name,
        "copyright": "Copyright the warren authors",
        "information": "Licensed under the Apache License 2.0. warren speaks AMQP 0-9-1 as RabbitMQ 3.10 does.",
        "platform": f"Python, warren {__version__}",
        "product": "RabbitMQ",
        "version": RABBITMQ_VERSION,
    }
    return encode_table(fields_from_python(properties))


def read_client_properties(client: Client, raw: bytes) -> None:
    """Let `client` have the properties in the table body `raw` (protocol section 2).

    A property of an unexpected type is ignored. Raises ConnectionException for a malformed table.
    """
    properties = decode_table(raw)
    client.properties = raw
    field = properties.get("connection_name")
    if field is not None and field.tag == TAG_LONGSTR and isinstance(field.value, bytes):
        client.name = field.value.decode("utf-8", "replace")
    field = properties.get("capabilities")
    if field is None or field.tag != TAG_TABLE or not isinstance(field.value, dict):
        return
    capabilities = field.value
    client.wants_cancel_notices = _is_true(capabilities.get("consumer_cancel_notify"))
    client.wants_blocked_notices = _is_true(capabilities.get("connection.blocked"))
    client.wants_refusal = _is_true(capabilities.get("authentication_failure_close"))


def _is_true(field: Field | None) -> bool:
    return field is not None and field.tag == TAG_BOOL and field.value is True


def handshake_deadline_ms(settings: Settings, now_ms: i64) -> i64:
    """Time at which a handshake that begins now must be over, or NEVER."""
    timeout_ms = settings.handshake_timeout_ms
    return now_ms + timeout_ms if timeout_ms > 0 else NEVER


class Peer:
    """The client's end of a connection.

    `name` is the connection's name, `certificate_name` the user's name in the client's verified
    certificate (b"": there is none). `is_loopback`: the client connected over a loopback address.
    """

    def __init__(self, name: str, is_loopback: bool, is_tls: bool, certificate_name: bytes) -> None:
        self.address: str = source_address(name)
        self.is_loopback: bool = is_loopback
        self.is_tls: bool = is_tls
        self.certificate_name: bytes = certificate_name


class Handshake:
    """The handshake of one connection; it fills in `client`."""

    def __init__(
        self,
        settings: Settings,
        access: Access,
        vhosts: dict[bytes, Vhost],
        client: Client,
        log: ConnectionLog,
        peer: Peer,
    ) -> None:
        self.state: i64 = states.STARTING
        # The negotiated limits, from connection.tune-ok on.
        self.tuned: methods.ConnectionTuneOk | None = None
        # The vhost of the client, from connection.open on.
        self.vhost: Vhost | None = None
        # The refusal of a login for the client.
        self.refusal: errors.ConnectionException | None = None
        # The name with which the client tried to log in, and why it was refused, for the log.
        self.login_name: bytes = b""
        self.login_fault: str = ""
        # Time at which a waiting login is answered (ms); 0 = no login waits.
        self._answer_at_ms: i64 = 0
        self._login_refusal: errors.ConnectionException | None = None
        self._settings: Settings = settings
        self._access: Access = access
        self._vhosts: dict[bytes, Vhost] = vhosts
        self._client: Client = client
        self._log: ConnectionLog = log
        self._peer: Peer = peer

    def start(self, cluster_name: str) -> methods.ConnectionStart:
        """The broker's first method, connection.start; `cluster_name` is for the client."""
        properties = server_properties(cluster_name)
        mechanisms = " ".join(self._mechanisms()).encode()
        return methods.ConnectionStart(0, 9, properties, mechanisms, b"en_US")

    def _mechanisms(self) -> list[str]:
        return offered_mechanisms(self._settings.auth_mechanisms, self._peer.is_tls)

    def take(self, method: Method, now_ms: i64) -> Method | None:
        """Handle a method of the client and return the answer, or None.

        A refused login has no answer but sets `refusal`. Raises ConnectionException 502, 503, 504
        or 530.
        """
        state = self.state
        is_waiting = self._answer_at_ms != 0
        if (
            isinstance(method, methods.ConnectionStartOk)
            and state == states.STARTING
            and not is_waiting
        ):
            return self._on_start_ok(method, now_ms)
        if isinstance(method, methods.ConnectionTuneOk) and state == states.TUNING:
            check_tuned(method, self._settings)
            self.tuned = method
            self.state = states.OPENING
            return None
        if isinstance(method, methods.ConnectionOpen) and state == states.OPENING:
            return self._on_open(method)
        raise unexpected_method(method, state)

    def _on_start_ok(self, method: methods.ConnectionStartOk, now_ms: i64) -> Method | None:
        client = self._client
        read_client_properties(client, method.client_properties)
        if client.name:
            self._log.named(client.name)
        mechanism = method.mechanism.decode("utf-8", "replace")
        check_mechanism(mechanism, self._mechanisms())
        client.mechanism = mechanism
        peer = self._peer
        guard = self._access.guard
        if mechanism == EXTERNAL:
            user_name = peer.certificate_name
            reason = "connection peer presented no TLS (x.509) certificate"
            if user_name:
                reason = self._access.name_refusal(user_name, peer.is_loopback)
        else:
            user_name, password = plain_credentials(mechanism, method.response)
            reason = self._access.password_refusal(user_name, password, peer.is_loopback)
        self.login_name = user_name
        self._access.attempts.count(AMQP, peer.address, user_name, not reason)
        if reason:
            wait_ms = guard.on_failure(peer.address, user_name, now_ms)
            self.login_fault = reason
            if guard.may_log(peer.address, now_ms):
                self._log.refused(f"{mechanism} login refused: {reason}")
            self._login_refusal = errors.ConnectionException(
                errors.ACCESS_REFUSED,
                f"Login was refused using authentication mechanism {mechanism}. "
                "For details see the broker logfile.",
            )
        else:
            wait_ms = guard.on_success(peer.address, user_name, now_ms)
            client.user_name = user_name
            client.account = self._access.account(user_name)
        if wait_ms == 0:
            return self.answer_login()
        self._answer_at_ms = now_ms + wait_ms
        return None

    def is_answer_due(self, now_ms: i64) -> bool:
        """Whether a login has waited long enough for its answer."""
        return self._answer_at_ms != 0 and now_ms >= self._answer_at_ms

    def answer_login(self) -> Method | None:
        """Answer the login, as `take`."""
        self._answer_at_ms = 0
        self.refusal = self._login_refusal
        if self.refusal is not None:
            return None
        self._log.authenticated(self._client.user_name)
        self.state = states.TUNING
        settings = self._settings
        return methods.ConnectionTune(settings.channel_max, settings.frame_max, settings.heartbeat)

    def _on_open(self, method: methods.ConnectionOpen) -> Method:
        name = method.virtual_host
        vhost = self._vhosts.get(name)
        shown = name.decode("utf-8", "replace")
        if vhost is None:
            raise errors.ConnectionException(errors.NOT_ALLOWED, f"vhost {shown} not found", 10, 40)
        client = self._client
        refused = f"access to vhost '{shown}' refused for user '{name_text(client.user_name)}'"
        limits = vhost.limits
        if is_reached(limits.max_connections, limits.connection_count):
            text = f"{refused}: connection limit ({limits.max_connections}) is reached"
            raise errors.ConnectionException(errors.NOT_ALLOWED, text, 10, 40)
        refusal = client.account.connection_refusal()
        if refusal:
            raise errors.ConnectionException(errors.NOT_ALLOWED, refusal, 10, 40)
        rights = self._access.rights(client.user_name, name)
        if rights is None:
            raise errors.ConnectionException(errors.NOT_ALLOWED, refused, 10, 40)
        client.rights = rights
        client.account.connection_count += 1
        limits.connection_count += 1
        self._log.granted(name)
        self.vhost = vhost
        self.state = states.RUNNING
        return methods.ConnectionOpenOk()

    def leave(self) -> None:
        """Count the connection no longer; it has come to its end. May be called again."""
        if self.state == states.RUNNING:
            self.state = states.CLOSED
            self._client.account.connection_count -= 1
            if self.vhost is not None:
                self.vhost.limits.connection_count -= 1


def unexpected_method(method: Method, state: i64) -> errors.ConnectionException:
    """The error for a connection method that is not allowed in `state`."""
    return errors.ConnectionException(
        errors.CHANNEL_ERROR,
        f"unexpected method in connection state {states.STATE_NAMES[state]}",
        method.class_id,
        method.method_id,
    )
