"""The copies of mirrored queues: describe, synchronise and move them; maintenance of a node."""

import time
from typing import Any, Final, get_args

from msgspec import to_builtins

from warrenmq.admin.protocol import mirrors
from warrenmq.admin.protocol.cluster import SetDraining
from warrenmq.admin.protocol.control import Counted, Done, List, Rows
from warrenmq.admin.protocol.requests import Request
from warrenmq.cli.control.command import Command, ReplyType, Run
from warrenmq.cli.control.exits import CommandError
from warrenmq.cli.control.formats.output import Output, Table, Text
from warrenmq.cli.control.link import Refused
from warrenmq.cli.control.nodes.status import section
from warrenmq.cli.control.parsing import Option
from warrenmq.vocabulary.error_codes import NO_SUCH_VHOST, NOT_FOUND, NOT_MIRRORED

_QUEUES: Final = "Queues"
_CLUSTER: Final = "Cluster"
_NONE: Final = "(none)"
# Pause before the progress of a synchronisation is asked for again (s).
_PAUSE_S: Final = 0.2
_KINDS: Final[tuple[mirrors.QueueKind, ...]] = get_args(mirrors.QueueKind)
_QUORUM_COLUMNS: Final = ("Node Name", "Raft State", "Synchronised", "Online")
_COUNT_COLUMNS: Final = (
    "Node name", "Number of quorum queues", "Number of replicated classic queues",
)  # fmt: skip


def _ask(run: Run, request: Request, expected: type[ReplyType]) -> ReplyType:
    """Ask for something about a queue; a refusal in RabbitMQ's words."""
    try:
        return run.ask(request, expected)
    except Refused as error:
        if error.refusal in (NOT_FOUND, NO_SUCH_VHOST):
            raise CommandError("Error:\nnot_found") from None
        if error.refusal == NOT_MIRRORED:
            raise CommandError("Error:\nnot_mirrored") from None
        raise


def _status(run: Run) -> mirrors.MirrorStatus:
    return _ask(
        run, mirrors.DescribeMirrors(vhost=run.vhost, queue=run[0].encode()), mirrors.MirrorStatus
    )


# -- synchronisation -------------------------------------------------------------------------------


def _sync(run: Run) -> Output:
    """Synchronise, and return when that is done; fail if it ends before, as by `cancel_sync_queue`.

    A mirror that cannot be reached is not waited for.
    """
    _ask(run, mirrors.SyncQueue(vhost=run.vhost, queue=run[0].encode()), Done)
    while (status := _status(run)).sync_messages is not None:
        time.sleep(_PAUSE_S)
    left = [each.node for each in status.mirrors if each.is_online and not each.is_synchronised]
    if left:
        raise CommandError(f"Error:\nended early; not synchronised: {', '.join(left)}")
    return None


def _cancel(run: Run) -> Output:
    found = _ask(run, mirrors.CancelSync(vhost=run.vhost, queue=run[0].encode()), Counted)
    return None if found.count else Text("not_syncing")


# -- mirror_status ---------------------------------------------------------------------------------


def _mirror_status(run: Run) -> Output:
    status = _status(run)
    data: dict[str, Any] = to_builtins(status)
    del data["type"]
    return Text("\n".join(_lines(status)), data, report=data)


def _lines(status: mirrors.MirrorStatus) -> list[str]:
    state = status.state
    if status.sync_messages is not None:
        state = f"{state}, {status.sync_messages} messages copied"
    losses = [f"{node}: {loss.text}" for node, loss in status.lost_if_stops.items()]
    return [
        *section(
            "Queue",
            f"Name: {status.name}",
            f"Virtual host: {status.vhost}",
            f"State: {state}",
            f"Reason: {status.reason}",
            f"Messages: {_shown(status.messages)}",
            f"Epoch: {status.epoch}, version: {status.version}",
            f"Synchronised copies needed to publish: {status.min_sync}",
        ),
        *section("Master", status.node if status.pid is None else f"{status.node} {status.pid}"),
        *section("Mirrors", *([_mirror_line(each) for each in status.mirrors] or [_NONE])),
        *section("Ring", " -> ".join([*status.ring, *status.ring[:1]]) or _NONE),
        *section("Recoverable copies", *(status.recoverable_slaves or [_NONE])),
        *section("Lost if a node stops now", *(losses or [_NONE]))[:-1],
    ]


def _mirror_line(mirror: mirrors.MirrorCopy) -> str:
    words = [mirror.node, mirror.pid]
    words.append("synchronised" if mirror.is_synchronised else "unsynchronised")
    if not mirror.is_online:
        words.append("offline")
    if mirror.sync_total is not None:
        words.append(f"syncing {mirror.sync_messages} of {mirror.sync_total} messages")
    return f"{' '.join(words)}{_speed(mirror)}, lag: {_lag(mirror)}"


def _speed(mirror: mirrors.MirrorCopy) -> str:
    """How fast the synchronisation is, and how long it takes yet."""
    if mirror.sync_left_ms is None:
        return ""
    rates = f"{mirror.sync_message_rate:.0f} messages/s, {mirror.sync_byte_rate or 0:.0f} bytes/s"
    return f", {rates}, {mirror.sync_left_ms / 1000:.1f} s left"


def _lag(mirror: mirrors.MirrorCopy) -> str:
    if mirror.lag_messages is None:
        return "unknown"
    age = f", {mirror.lag_ms} ms" if mirror.lag_ms else ""
    if mirror.lag_messages > 0:
        return f"{mirror.lag_messages} messages ({_shown(mirror.lag_bytes)} bytes){age}"
    if mirror.lag_bytes:
        # Acks, deliveries and so on are changes, too, but no messages.
        return f"no messages, {mirror.lag_bytes} bytes of other changes{age}"
    return "none"


def _shown(number: int | None) -> str:
    return "unknown" if number is None else str(number)


# -- quorum queues ---------------------------------------------------------------------------------


def _quorum_status(run: Run) -> Output:
    """The copies of a quorum queue: where the master is, and which mirrors are synchronised."""
    columns = ["name", "type", "leader", "members", "online", "synchronised_slave_nodes", "state"]
    try:
        rows = run.ask(List(what="queues", columns=columns, vhost=run.vhost), Rows).rows
    except Refused as error:
        if error.refusal == NO_SUCH_VHOST:
            raise CommandError("Error:\nnot_found") from None
        raise
    found = next((row for row in rows if row[0] == run[0]), None)
    if found is None:
        raise CommandError("Error:\nnot_found")
    _name, kind, leader, members, online, synchronised, state = found
    if kind != "quorum":
        raise CommandError("Error:\nCannot get quorum status of a classic queue")
    return Table(
        _QUORUM_COLUMNS,
        [
            [
                node,
                "leader" if node == leader and state != "down" else "follower",
                node == leader or node in (synchronised or ()),
                node in (online or ()),
            ]
            for node in members or ()
        ],
    )


# -- nodes -----------------------------------------------------------------------------------------


def _set_draining(run: Run, is_on: bool) -> Output:
    run.do(SetDraining(is_on=is_on))
    return None


def _kind(run: Run) -> mirrors.QueueKind:
    found = next((kind for kind in _KINDS if kind == run[0]), None)
    if found is None:
        text = f"type {run[0]} is not supported. Try one of {', '.join(_KINDS)}."
        raise CommandError(f"Error:\n{text}")
    return found


def rebalance_queues(run: Run, kind: mirrors.QueueKind) -> Output:
    """Spread the masters of queues over the nodes; the table has how many each node has then."""
    request = mirrors.RebalanceQueues(
        vhost_pattern=run.text("vhost-pattern", ".*"),
        queue_pattern=run.text("queue-pattern", ".*"),
        kind=kind,
    )
    counts = run.ask(request, mirrors.MasterCounts)
    nodes = sorted({*counts.quorum, *counts.classic})
    rows = [[node, counts.quorum.get(node, 0), counts.classic.get(node, 0)] for node in nodes]
    return Table(_COUNT_COLUMNS, rows)


_BANNERS: Final[dict[mirrors.QueueKind, str]] = {
    "all": "Re-balancing leaders of all replicated queues...",
    "classic": "Re-balancing leaders of replicated (mirrored, non-exclusive) classic queues...",
    "quorum": "Re-balancing leaders of quorum queues...",
}

COMMANDS: Final = (
    Command(
        "cancel_sync_queue", _QUEUES, "Stops the synchronisation of a queue's mirrors", _cancel,
        "<queue>", (1, 1), takes_vhost=True,
        banner=lambda run: f"Stopping synchronising queue '{run[0]}' in vhost '{run.vhost}' ...",
    ),
    Command(
        "mirror_status", _QUEUES, "Shows the copies of a mirrored queue", _mirror_status,
        "<queue>", (1, 1), takes_vhost=True, takes_timeout=True,
        banner=lambda run: f"Status of mirrored queue '{run[0]}' in vhost '{run.vhost}' ...",
    ),
    Command(
        "quorum_status", _QUEUES, "Shows the copies of a quorum queue", _quorum_status,
        "<queue>", (1, 1), takes_vhost=True, formatter="pretty_table", is_table=True,
        banner=lambda run: f"Status of quorum queue {run[0]} on node {run.node} ...",
    ),
    Command(
        "sync_queue", _QUEUES, "Synchronises a queue's mirrors, and waits until they are", _sync,
        "<queue>", (1, 1), takes_vhost=True,
        banner=lambda run: f"Synchronising queue '{run[0]}' in vhost '{run.vhost}' ...",
    ),
    Command(
        "drain", _CLUSTER, "Puts the node in maintenance mode: no clients, no new queues",
        lambda run: _set_draining(run, True), takes_timeout=True,
        banner=lambda run: (
            f"Will put node {run.node} into maintenance mode. "
            "The node will no longer serve any client traffic!"
        ),
    ),
    Command(
        "rebalance", _CLUSTER, "Spreads the masters of mirrored queues evenly over the nodes",
        lambda run: rebalance_queues(run, _kind(run)), "all | classic | quorum", (1, 1), formatter="pretty_table", is_table=True,
        options=(
            Option("vhost-pattern", help="vhosts whose names match (default: all)", metavar="pattern"),
            Option("queue-pattern", help="queues whose names match (default: all)", metavar="pattern"),
        ),
        banner=lambda run: _BANNERS[_kind(run)],
    ),
    Command(
        "revive", _CLUSTER, "Ends the maintenance mode of the node",
        lambda run: _set_draining(run, False), takes_timeout=True,
        banner=lambda run: (
            f"Will put node {run.node} back into regular operating mode. "
            "The node will again serve client traffic and host primary queue replicas."
        ),
    ),
)  # fmt: skip
