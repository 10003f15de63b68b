"""Channels and their consumers, as RabbitMQ's HTTP API shows them."""

from functools import partial
from typing import Final

from warrenmq.admin.protocol.control import NAMES_MAX
from warrenmq.admin.protocol.pids import node_of_pid
from warrenmq.management.objects.listings import known, listed_for, rows_of_vhosts, vhosts_of
from warrenmq.management.recent_listings import RecentListings
from warrenmq.management.rows import Row
from warrenmq.management.sessions import Caller

_CHANNEL: Final = [
    "pid", "name", "number", "user", "vhost", "transactional", "confirm", "consumer_count",
    "messages_unacknowledged", "messages_unconfirmed", "messages_uncommitted", "acks_uncommitted",
    "prefetch_count", "global_prefetch_count", "state", "oldest_unacknowledged_seconds",
]  # fmt: skip


def channels(caller: Caller, listings: RecentListings) -> list[Row]:
    """The channels that the caller sees, perhaps of a moment ago: all for a monitor."""
    return listings.rows("channels", listed_for(caller), lambda: _channels(caller))


def channels_called(caller: Caller, name: str) -> list[Row]:
    """The channels that the caller sees and that have this name, or whose connection has it."""
    return _channels(caller, [name])


def _channels(caller: Caller, names: list[str] | None = None) -> list[Row]:
    return [_channel(row) for row in caller.rows("channels", _CHANNEL, names=names)]


def _channel(row: Row) -> Row:
    shown = known(row)
    shown["node"] = node_of_pid(shown.pop("pid"))
    shown["message_stats"] = {}
    shown["connection_details"] = _connection_details(row["name"])
    return shown


def _connection_details(channel: str) -> Row:
    """The connection of the channel called `PEER_HOST:PORT -> HOST:PORT (NUMBER)`."""
    name = channel.rpartition(" (")[0]
    host, _, port = name.partition(" -> ")[0].rpartition(":")
    return {"name": name, "peer_host": host.strip("[]"), "peer_port": int(port or 0)}


_CONSUMER: Final = (
    "queue_name", "channel_pid", "consumer_tag", "ack_required", "prefetch_count", "active",
    "activity_status", "arguments", "messages_unacknowledged", "oldest_unacknowledged_seconds",
)  # fmt: skip


def listed_consumers(
    caller: Caller, listings: RecentListings, vhost: str | None = None
) -> list[Row]:
    """The consumers of a vhost, or of all that the caller sees, perhaps of a moment ago."""
    viewer = listed_for(caller)
    return [
        row
        for each in vhosts_of(caller, vhost)
        for row in listings.rows("consumers", f"{each}\n{viewer}", partial(consumers, caller, each))
    ]


def consumer_names(row: Row) -> tuple[str, ...]:
    """The texts of a consumer that the filter by name looks at: of its queue, and its tag."""
    return row["queue"]["name"], row["consumer_tag"]


def consumers(caller: Caller, vhost: str, queues: list[str] | None = None) -> list[Row]:
    """The consumers of a vhost; with `queues`, only of these.

    Those of channels that the caller does not see have no `channel_details`.
    """
    rows = rows_of_vhosts(caller, "consumers", _CONSUMER, [vhost], queues)
    pids = list({row["channel_pid"] for row in rows})
    asked = None if len(pids) > NAMES_MAX else pids
    channel_of = {
        row["pid"]: row for row in (caller.rows("channels", _CHANNEL, names=asked) if pids else ())
    }
    return [_consumer(row, channel_of.get(row["channel_pid"])) for row in rows]


def _consumer(row: Row, channel: Row | None) -> Row:
    shown = known(row)
    shown["queue"] = {"name": shown.pop("queue_name"), "vhost": shown.pop("vhost")}
    del shown["channel_pid"]
    shown["channel_details"] = {} if channel is None else _channel_details(channel)
    return shown


def _channel_details(channel: Row) -> Row:
    connection = _connection_details(channel["name"])
    return {
        "name": channel["name"],
        "number": channel["number"],
        "connection_name": connection["name"],
        "node": node_of_pid(channel["pid"]),
        "peer_host": connection["peer_host"],
        "peer_port": connection["peer_port"],
        "user": channel["user"],
    }
