"""Options of the data source "warren_store": parsed and checked once, into a typed value."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from warren.spark.options import OptionError, parse_boolean, parse_number

if TYPE_CHECKING:
    from warren.tables.parts import ReadOptions

_VERIFY: Final = ("vhost", "verify")
_RANGES: Final = ("queues", "seqFrom", "seqTo", "enqueuedFrom", "enqueuedTo")
# What may be said of each table, beside `path` and `table`.
TABLE_OPTIONS: Final[dict[str, tuple[str, ...]]] = {
    "messages": (*_VERIFY, *_RANGES, "includeBody"),
    "positions": (*_VERIFY, *_RANGES),
    "files": _VERIFY,
    "journal": _VERIFY,
    "metadata": ("vhost",),
    "damage": ("vhost",),
}
_SEQ_MAX: Final = 1 << 62


@dataclass(frozen=True)
class StoreOptions:
    """What the user asked for. Ranges as in `ReadOptions`; None: not given."""

    path: str
    table: str
    vhost: str | None
    queues: tuple[str, ...] | None
    seq_from: int | None
    seq_to: int | None
    enqueued_from_ms: int | None
    enqueued_to_ms: int | None
    verify: str
    include_body: bool

    def read_options(self) -> "ReadOptions":
        """What the reader of tables has to know."""
        from warren.tables.parts import ReadOptions

        return ReadOptions(
            vhost=self.vhost,
            queues=self.queues,
            seq_from=self.seq_from,
            seq_to=self.seq_to,
            enqueued_from_ms=self.enqueued_from_ms,
            enqueued_to_ms=self.enqueued_to_ms,
            verify=self.verify,
        )


def parse_store_options(options: Mapping[str, str]) -> StoreOptions:
    """OptionError, in one line, for anything that cannot be honoured."""
    given = {name.lower(): value for name, value in options.items()}
    table = given.get("table", "messages").lower()
    if table not in TABLE_OPTIONS:
        raise OptionError(f"option 'table' is one of {', '.join(TABLE_OPTIONS)}, not '{table}'")
    known = {name.lower(): name for name in ("path", "table", *TABLE_OPTIONS[table])}
    for name in sorted(given):
        if name not in known:
            raise OptionError(
                f"unknown option '{name}'; format \"warren_store\" has for the table '{table}': "
                f"{', '.join(known.values())}"
            )
    path = given.get("path")
    if not path:
        raise OptionError("option 'path' is missing: the data directory of a stopped node, or a backup")
    verify = given.get("verify", "crc").lower()
    if verify not in ("crc", "none"):
        raise OptionError(f"option 'verify' is crc or none, not '{verify}'")
    return StoreOptions(
        path=path.removeprefix("file://"),
        table=table,
        vhost=given.get("vhost"),
        queues=_names(given.get("queues")),
        seq_from=_seq(given, "seqFrom"),
        seq_to=_seq(given, "seqTo"),
        enqueued_from_ms=_time_ms(given, "enqueuedFrom"),
        enqueued_to_ms=_time_ms(given, "enqueuedTo"),
        verify=verify,
        include_body=parse_boolean(given, "includeBody", True),
    )


def _names(value: str | None) -> tuple[str, ...] | None:
    """Separated by commas, or a JSON list for names that have some."""
    if value is None:
        return None
    names: Any
    if value.startswith("["):
        try:
            names = json.loads(value)
        except ValueError:
            names = None
    else:
        names = [name.strip() for name in value.split(",")]
    if not isinstance(names, list) or not names or not all(isinstance(name, str) and name for name in names):
        raise OptionError("option 'queues': names separated by commas, or a JSON list of names")
    return tuple(names)


def _seq(given: Mapping[str, str], name: str) -> int | None:
    return parse_number(given, name, 0, 0, _SEQ_MAX) if name.lower() in given else None


def _time_ms(given: Mapping[str, str], name: str) -> int | None:
    value = given.get(name.lower())
    if value is None:
        return None
    try:
        time = datetime.fromisoformat(value)
    except ValueError:
        raise OptionError(
            f"option '{name}' is a time like 2026-01-31T12:00:00Z (UTC when no zone is given), not '{value}'"
        ) from None
    if time.tzinfo is None:
        time = time.replace(tzinfo=UTC)
    return round(time.timestamp() * 1000)
