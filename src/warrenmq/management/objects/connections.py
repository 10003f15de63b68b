"""Connections, as RabbitMQ's HTTP API shows them."""

from typing import Final

from warrenmq.admin.protocol.pids import node_of_pid
from warrenmq.management.objects.listings import listed_for
from warrenmq.management.recent_listings import RecentListings
from warrenmq.management.rows import Row
from warrenmq.management.sessions import Caller

_CONNECTION: Final = [
    "pid", "name", "host", "port", "peer_host", "peer_port", "ssl", "ssl_protocol",
    "ssl_key_exchange", "ssl_cipher", "ssl_hash", "peer_cert_subject", "peer_cert_issuer",
    "peer_cert_validity", "state", "channels", "auth_mechanism", "user", "vhost", "timeout",
    "frame_max", "channel_max", "client_properties", "user_provided_name", "connected_at",
    "recv_oct", "recv_cnt", "send_oct", "send_cnt", "send_pend",
]  # fmt: skip
# Fields that RabbitMQ shows as null on a connection without TLS.
_TLS: Final = (
    "ssl_protocol", "ssl_key_exchange", "ssl_cipher", "ssl_hash", "peer_cert_subject",
    "peer_cert_issuer", "peer_cert_validity",
)  # fmt: skip


def connections(caller: Caller, listings: RecentListings) -> list[Row]:
    """The connections that the caller sees, perhaps of a moment ago: all for a monitor."""
    return listings.rows("connections", listed_for(caller), lambda: _connections(caller))


def connection_names(row: Row) -> tuple[str, ...]:
    """The texts of a connection that the filter by name looks at: its name, and its client's."""
    return row["name"], row.get("user_provided_name", "")


def connections_called(caller: Caller, name: str) -> list[Row]:
    """The connections of this name that the caller sees."""
    return _connections(caller, [name])


def _connections(caller: Caller, names: list[str] | None = None) -> list[Row]:
    rows = caller.rows("connections", _CONNECTION, names=names)
    return [_connection(row) for row in rows]


def _connection(row: Row) -> Row:
    shown = {name: value for name, value in row.items() if value is not None or name in _TLS}
    shown["node"] = node_of_pid(shown.pop("pid"))
    shown["protocol"] = "AMQP 0-9-1"
    shown["type"] = "network"
    return shown
