"""The handshake from connection.start to connection.open: login, limits, vhost (protocol 2).

STARTING -> TUNING -> OPENING -> RUNNING
"""

from __future__ import annotations

from mypy_extensions import i64

from warrenmq.broker.channel.client import Client
from warrenmq.broker.connection.client_properties import read_client_properties
from warrenmq.broker.connection.log import ConnectionLog
from warrenmq.broker.connection.server_properties import server_properties
from warrenmq.broker.connection.states import OPENING, RUNNING, STARTING, STATE_NAMES, TUNING
from warrenmq.broker.connection.tuning import check_tuned
from warrenmq.broker.definitions.access import Access
from warrenmq.broker.definitions.authentication import plain_credentials
from warrenmq.broker.definitions.settings import Settings
from warrenmq.broker.vhost.vhost import Vhost
from warrenmq.wire.errors import (
    ACCESS_REFUSED,
    CHANNEL_ERROR,
    COMMAND_INVALID,
    NOT_ALLOWED,
    ConnectionException,
)
from warrenmq.wire.method import Method
from warrenmq.wire.methods import (
    ConnectionOpen,
    ConnectionOpenOk,
    ConnectionStart,
    ConnectionStartOk,
    ConnectionTune,
    ConnectionTuneOk,
)


class Handshake:
    """The handshake of one connection; it fills in `client`.

    `is_loopback`: the client connected over a loopback address.
    """

    def __init__(
        self,
        settings: Settings,
        access: Access,
        vhosts: dict[bytes, Vhost],
        client: Client,
        log: ConnectionLog,
        is_loopback: bool,
    ) -> None:
        self.state: i64 = STARTING
        # The negotiated limits, from connection.tune-ok on.
        self.tuned: ConnectionTuneOk | None = None
        # The vhost of the client, from connection.open on.
        self.vhost: Vhost | None = None
        # The reason of a refused login.
        self.refusal: ConnectionException | None = None
        self._settings: Settings = settings
        self._access: Access = access
        self._vhosts: dict[bytes, Vhost] = vhosts
        self._client: Client = client
        self._log: ConnectionLog = log
        self._is_loopback: bool = is_loopback

    def start(self) -> ConnectionStart:
        """The broker's first method, connection.start."""
        properties = server_properties(self._settings.cluster_name)
        return ConnectionStart(0, 9, properties, b"PLAIN AMQPLAIN", b"en_US")

    def take(self, method: Method) -> Method | None:
        """Handle a method of the client and return the answer, or None.

        A refused login has no answer but sets `refusal`. Raises ConnectionException 502, 503, 504
        or 530.
        """
        state = self.state
        if isinstance(method, ConnectionStartOk) and state == STARTING:
            return self._on_start_ok(method)
        if isinstance(method, ConnectionTuneOk) and state == TUNING:
            check_tuned(method, self._settings)
            self.tuned = method
            self.state = OPENING
            return None
        if isinstance(method, ConnectionOpen) and state == OPENING:
            return self._on_open(method)
        raise unexpected_method(method, state)

    def _on_start_ok(self, method: ConnectionStartOk) -> Method | None:
        client = self._client
        properties = read_client_properties(method.client_properties)
        client.name = properties.name
        client.capabilities = properties.capabilities
        client.properties = method.client_properties
        if client.name:
            self._log.named(client.name)
        mechanism = method.mechanism.decode("utf-8", "replace")
        if mechanism not in ("PLAIN", "AMQPLAIN"):
            raise ConnectionException(
                COMMAND_INVALID, f"unknown authentication mechanism '{mechanism}'"
            )
        client.mechanism = mechanism
        user_name, password = plain_credentials(mechanism, method.response)
        user = self._access.authenticate(user_name, password, self._is_loopback)
        if user is None:
            shown = user_name.decode("utf-8", "replace")
            self._log.refused(f"{mechanism} login refused: user '{shown}' - invalid credentials")
            self.refusal = ConnectionException(
                ACCESS_REFUSED,
                f"Login was refused using authentication mechanism {mechanism}. "
                "For details see the broker logfile.",
            )
            return None
        client.user_name = user.name
        client.is_impersonator = "impersonator" in user.tags
        self._log.authenticated(user.name)
        self.state = TUNING
        settings = self._settings
        return ConnectionTune(settings.channel_max, settings.frame_max, settings.heartbeat)

    def _on_open(self, method: ConnectionOpen) -> Method:
        name = method.virtual_host
        vhost = self._vhosts.get(name)
        shown = name.decode("utf-8", "replace")
        if vhost is None:
            raise ConnectionException(NOT_ALLOWED, f"vhost {shown} not found", 10, 40)
        user_name = self._client.user_name
        rights = self._access.rights(user_name, name)
        if rights is None:
            user = user_name.decode("utf-8", "replace")
            raise ConnectionException(
                NOT_ALLOWED, f"access to vhost '{shown}' refused for user '{user}'", 10, 40
            )
        self._client.rights = rights
        self._log.granted(name)
        self.vhost = vhost
        self.state = RUNNING
        return ConnectionOpenOk()


def unexpected_method(method: Method, state: i64) -> ConnectionException:
    """The error for a connection method that is not allowed in `state`."""
    return ConnectionException(
        CHANNEL_ERROR,
        f"unexpected method in connection state {STATE_NAMES[state]}",
        method.class_id,
        method.method_id,
    )
