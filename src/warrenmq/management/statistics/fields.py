"""The fields of the HTTP API that show figures: `message_stats`, `X_details` and the like.

A request asks for samples by age and step: `msg_rates_age=600&msg_rates_incr=5` for messages,
`lengths` for lengths of queues, `data_rates` for bytes, `node_stats` for nodes (RabbitMQ's).
"""

import re
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final, NamedTuple

from starlette.datastructures import QueryParams

from warrenmq.admin.protocol.changes import NODE
from warrenmq.management.errors import HttpRefusal
from warrenmq.management.rows import Row
from warrenmq.management.statistics.history import SAMPLES_MAX, Range
from warrenmq.management.statistics.view import PLACES, View

# Counters that RabbitMQ shows together, as soon as one of them has counted anything. `deliver_get`
# is the sum of the four ways to hand out a message.
_DELIVERED: Final = ("deliver", "deliver_no_ack", "get", "get_no_ack")
_GROUPS: Final[tuple[tuple[str, ...], ...]] = (
    ("publish", "confirm", "return_unroutable", "drop_unroutable"),
    (*_DELIVERED, "get_empty", "redeliver", "ack"),
    ("publish_in",),
    ("publish_out",),
)
_DISK: Final = ("disk_reads", "disk_writes")
_CHURN: Final = (
    "connection_created", "connection_closed", "channel_created", "channel_closed",
    "queue_declared", "queue_created", "queue_deleted",
)  # fmt: skip
_NODE_LEVELS: Final = ("mem_used", "disk_free", "fd_used", "sockets_used")
_OCTETS: Final = ("recv_oct", "send_oct")
_LENGTHS: Final[dict[str, tuple[str, ...]]] = {
    "messages": ("messages_ready", "messages_unacknowledged"),
    "messages_ready": ("messages_ready",),
    "messages_unacknowledged": ("messages_unacknowledged",),
}
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,18}", re.ASCII)


class Ranges(NamedTuple):
    """The samples that a request asks for, None for none."""

    messages: Range | None = None
    lengths: Range | None = None
    bytes: Range | None = None
    nodes: Range | None = None


def ranges_of(query: QueryParams, error: str = "bad_request") -> Ranges:
    """The ranges in a query. Raises HttpRefusal with the code `error` for one that cannot be."""
    return Ranges(
        *[
            _range(query, name, error)
            for name in ("msg_rates", "lengths", "data_rates", "node_stats")
        ]
    )


def _range(query: QueryParams, name: str, error: str) -> Range | None:
    """A range of which a part is missing or no number is none at all, as in RabbitMQ."""
    texts = [query.get(f"{name}_age", ""), query.get(f"{name}_incr", "")]
    if not all([_INTEGER.fullmatch(text) for text in texts]):
        return None
    age_s, step_s = [int(text) for text in texts]
    if age_s <= 0 or step_s <= 0 or age_s // step_s > SAMPLES_MAX:
        text = f"Invalid range parameters: age {age_s}, incr {step_s}"
        raise HttpRefusal(400, error, text)
    return Range(age_s, step_s)


def figure_at(kind: str, path: list[str]) -> tuple[tuple[str, ...], bool] | None:
    """The figures of which the field at a path is the sum, and whether it is their rate.

    None for another field than counters, and rates of counters and lengths.
    """
    is_rate = len(path) > 1 and path[-1] == "rate" and path[-2].endswith("_details")
    last = path[-2].removesuffix("_details") if is_rate else path[-1]
    outer = path[: -2 if is_rate else -1]
    names: tuple[str, ...] = ()
    if outer == ["message_stats"]:
        names = _DELIVERED if last == "deliver_get" else (last,)
    elif is_rate and not outer:
        names = _LENGTHS.get(last, ())
    is_known = len(names) > 0 and set(names) <= PLACES[kind].keys()
    return (names, is_rate) if is_known else None


def message_stats(view: View, asked: Range | None) -> Row:
    """What clients have done with messages: the counters that RabbitMQ shows of such an object."""
    shown: Row = {}
    known = PLACES[view.kind]
    for group in _GROUPS:
        names = [name for name in group if name in known]
        if names and view.value(*names):
            shown |= _counted(view, names, asked)
            if names[0] == _DELIVERED[0]:
                shown["deliver_get"] = view.value(*_DELIVERED)
                shown["deliver_get_details"] = view.details(*_DELIVERED, asked=asked)
    if view.kind == NODE and shown:
        shown |= _counted(view, _DISK, asked)
    return shown


def lengths(view: View, asked: Range | None) -> Row:
    """The `X_details` of messages of queues."""
    return {
        f"{name}_details": view.details(*figures, asked=asked) for name, figures in _LENGTHS.items()
    }


def idle_since(changed_ms: int) -> Row:
    """`idle_since` of an object that changed last at `changed_ms`, nothing of a busy one (0)."""
    if not changed_ms:
        return {}
    time = datetime.fromtimestamp(changed_ms / 1000, UTC)
    return {"idle_since": time.isoformat(timespec="milliseconds")}


def octets(view: View, asked: Range | None) -> Row:
    """The `X_details` of bytes of connections."""
    return {f"{name}_details": view.details(name, asked=asked) for name in _OCTETS}


def octet_counts(view: View) -> Row:
    """Bytes of connections."""
    return {name: view.value(name) for name in _OCTETS}


def churn(view: View, asked: Range | None) -> Row:
    """Connections, channels and queues that have come and gone, of a node."""
    return _counted(view, _CHURN, asked)


def node_stats(view: View, asked: Range | None) -> Row:
    """The `X_details` of a node, and its churn."""
    levels = {f"{name}_details": view.details(name, asked=asked) for name in _NODE_LEVELS}
    return levels | churn(view, asked)


def _counted(view: View, names: Iterable[str], asked: Range | None) -> Row:
    shown: Row = {}
    for name in names:
        shown[name] = view.value(name)
        shown[f"{name}_details"] = view.details(name, asked=asked)
    return shown
