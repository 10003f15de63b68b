"""What a request shows of the statistics: rates, and samples if it asks for some.

`disable_stats=true` asks for objects without them, which is cheaper, and with
`enable_queue_totals=true` for the lengths of queues alone (RabbitMQ's).
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Annotated, Final

from fastapi import Depends, Request

from warrenmq.admin.protocol.changes import CHANNEL, CONNECTION, EXCHANGE, NODE, QUEUE
from warrenmq.management.errors import bad_request
from warrenmq.management.rows import Row
from warrenmq.management.statistics import fields
from warrenmq.management.statistics.fields import Ranges, ranges_of
from warrenmq.management.statistics.figures import VHOST
from warrenmq.management.statistics.statistics import Statistics
from warrenmq.management.statistics.stores import forms_of, intervals_of
from warrenmq.management.statistics.view import View
from warrenmq.server.config.options.http_listeners import ManagementOptions

_TRUE: Final = "true"
_QUEUE: Final = (
    "arguments", "auto_delete", "durable", "exclusive", "name", "node", "state", "type", "vhost",
)  # fmt: skip
_QUEUE_TOTALS: Final = ("messages", "messages_ready", "messages_unacknowledged")
_CONNECTION: Final = ("name", "vhost", "user", "node")
_NODE: Final = ("name", "type", "running")
_TOTALS_WITHOUT_STATS: Final = ("queues", "exchanges", "connections")
_NO_RANGES: Final = Ranges()
_OF_VHOST: Final = frozenset({"message_stats", *_QUEUE_TOTALS})


class Shown:
    """Adds figures to the rows of one request, or removes what `disable_stats` removes.

    A list that is sorted by a figure needs the figures of all rows, but not their samples.
    """

    def __init__(self, statistics: Statistics, ranges: Ranges, options: ManagementOptions) -> None:
        self.statistics = statistics
        self.ranges = ranges
        # Whether statistics are off, and whether lengths of queues are shown even so.
        self.is_off = options.disable_stats
        self.has_totals = options.enable_queue_totals
        self.rates_mode = options.rates_mode

    def queue(self, row: Row, has_samples: bool = True) -> Row:
        """A queue."""
        if self.is_off:
            return _only(row, (*_QUEUE, *_QUEUE_TOTALS) if self.has_totals else _QUEUE)
        ranges = self.ranges if has_samples else _NO_RANGES
        view = self.statistics.find(QUEUE, row["vhost"], row["name"])
        stats = row["message_stats"] | self.message_stats(view, ranges)
        return (
            row
            | fields.lengths(view, ranges.lengths)
            | self._idle_since(QUEUE, row)
            | {"message_stats": stats}
        )

    def queue_figure(self, path: list[str]) -> Callable[[Row], float] | None:
        """What gives the figure at a path for a queue, such as `messages_details.rate`, or None.

        That of `idle_since` is in ms.
        """
        if path == ["idle_since"]:
            return lambda row: self.statistics.idle_since_ms(QUEUE, row["vhost"], row["name"])
        figure = fields.figure_at(QUEUE, path)
        if figure is None:
            return None
        found = self.statistics.by_name(QUEUE, *figure)
        return lambda row: found.get((row["vhost"], row["name"]), 0)

    def exchange(self, row: Row, has_samples: bool = True) -> Row:
        """An exchange."""
        if self.is_off:
            return {name: value for name, value in row.items() if name != "message_stats"}
        ranges = self.ranges if has_samples else _NO_RANGES
        view = self.statistics.find(EXCHANGE, row["vhost"], row["name"])
        return row | {"message_stats": self.message_stats(view, ranges)}

    def channel(self, row: Row, has_samples: bool = True) -> Row:
        """A channel. Raises HttpRefusal when statistics are off, as RabbitMQ does."""
        if self.is_off:
            raise bad_request("Stats in management UI are disabled on this node")
        ranges = self.ranges if has_samples else _NO_RANGES
        view = self.statistics.find(CHANNEL, row["vhost"], row["name"])
        stats = self.message_stats(view, ranges)
        return row | self._idle_since(CHANNEL, row) | {"message_stats": stats}

    def connection(self, row: Row, has_samples: bool = True) -> Row:
        """A connection."""
        if self.is_off:
            return _only(row, _CONNECTION)
        ranges = self.ranges if has_samples else _NO_RANGES
        view = self.statistics.find(CONNECTION, row["vhost"], row["name"])
        return row | fields.octets(view, ranges.bytes)

    def vhost(self, row: Row, has_samples: bool = True) -> Row:
        """A vhost."""
        if self.is_off:
            return {name: value for name, value in row.items() if name not in _OF_VHOST}
        ranges = self.ranges if has_samples else _NO_RANGES
        view = self.statistics.find(VHOST, row["name"])
        return (
            row
            | fields.lengths(view, ranges.lengths)
            | fields.octet_counts(view)
            | fields.octets(view, ranges.bytes)
            | {"message_stats": self.message_stats(view, ranges)}
        )

    def node(self, row: Row, has_samples: bool = True) -> Row:
        """A node."""
        if self.is_off:
            return _only(row, _NODE)
        if not row["running"]:
            return row
        ranges = self.ranges if has_samples else _NO_RANGES
        view = self.statistics.find(NODE, node=row["name"])
        return row | fields.node_stats(view, ranges.nodes) | {"rates_mode": self.rates_mode}

    def storage(self, node: str) -> list[Row] | None:
        """What the stores of a node have done, by interval; None if the request asks for none."""
        if self.is_off or self.ranges.nodes is None:
            return None
        return intervals_of(self.statistics.find(NODE, node=node), self.ranges.nodes)

    def forms(self, vhost: str, queue: str) -> list[Row] | None:
        """The messages of a queue by form, over time; None if the request asks for none."""
        if self.is_off or self.ranges.lengths is None:
            return None
        return forms_of(self.statistics.find(QUEUE, vhost, queue), self.ranges.lengths)

    def overview(self, row: Row, vhosts: list[str] | None) -> Row:
        """The overview, of some vhosts or of everything."""
        is_off = {"disable_stats": self.is_off, "enable_queue_totals": self.has_totals}
        row = row | is_off | {"rates_mode": self.rates_mode}
        if self.is_off:
            totals = {name: row["object_totals"][name] for name in _TOTALS_WITHOUT_STATS}
            hidden = ("message_stats", "queue_totals", "churn_rates", "listeners", "contexts")
            bare = {name: value for name, value in row.items() if name not in hidden}
            return bare | {"object_totals": totals}
        nodes = self.statistics.find(NODE)
        seen = nodes if vhosts is None else self.statistics.find_vhosts(vhosts)
        return row | {
            "message_stats": self.message_stats(seen, self.ranges),
            "churn_rates": fields.churn(nodes, self.ranges.messages),
            "queue_totals": row["queue_totals"] | fields.lengths(seen, self.ranges.lengths),
        }

    def _idle_since(self, kind: str, row: Row) -> Row:
        return fields.idle_since(self.statistics.idle_since_ms(kind, row["vhost"], row["name"]))

    def message_stats(self, view: View, ranges: Ranges) -> Row:
        """What clients have done with messages; nothing in the mode `none`."""
        if self.rates_mode == "none":
            return {}
        return fields.message_stats(view, ranges.messages)


def _only(row: Row, names: tuple[str, ...]) -> Row:
    return {name: row[name] for name in names if name in row}


def statistics_of(request: Request) -> Statistics:
    """The statistics of the application that answers the request."""
    statistics: Statistics = request.app.state.statistics
    return statistics


def _shown(request: Request) -> Shown:
    query = request.query_params
    # RabbitMQ has another code in the lists of queues.
    is_of_queues = request.scope["route"].path.startswith("/api/queues")
    ranges = ranges_of(query, "invalid_range_parameters" if is_of_queues else "bad_request")
    options: ManagementOptions = request.app.state.options
    options = replace(
        options,
        disable_stats=options.disable_stats or query.get("disable_stats") == _TRUE,
        enable_queue_totals=options.enable_queue_totals
        or query.get("enable_queue_totals") == _TRUE,
    )
    return Shown(statistics_of(request), ranges, options)


FiguresOf = Annotated[Shown, Depends(_shown)]
