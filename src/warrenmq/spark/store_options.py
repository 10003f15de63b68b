"""Options of the data source "warren_store": parsed and checked once, into a typed value."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

from warrenmq.spark.large_bodies import READ_CHOICES
from warrenmq.spark.options import (
    OptionError,
    check_names,
    parse_boolean,
    parse_choice,
    parse_large_bodies,
    parse_names,
    parse_number,
    parse_time_ms,
)

if TYPE_CHECKING:
    from warrenmq.tables.parts import ReadOptions

_VERIFY: Final = ("vhost", "verify")
_RANGES: Final = ("queues", "seqFrom", "seqTo", "enqueuedFrom", "enqueuedTo")
# Options that each table has beside `path` and `table`.
TABLE_OPTIONS: Final[dict[str, tuple[str, ...]]] = {
    "messages": (*_VERIFY, *_RANGES, "includeBody", "largeBodies"),
    "positions": (*_VERIFY, *_RANGES),
    "files": _VERIFY,
    "journal": _VERIFY,
    "metadata": ("vhost",),
    "damage": ("vhost",),
}
_SEQ_MAX: Final = 1 << 62


@dataclass(frozen=True)
class StoreOptions:
    """The options of a read. Ranges are as in `ReadOptions`; None where an option is not given."""

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
    # One of large_bodies.READ_CHOICES.
    large_bodies: str

    def read_options(self) -> "ReadOptions":
        """The options that the reader of tables takes."""
        from warrenmq.tables.parts import ReadOptions

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
    """The options of a read. Raises OptionError, in one line, for an option that is not usable."""
    given = {name.lower(): value for name, value in options.items()}
    table = given.get("table", "messages").lower()
    if table not in TABLE_OPTIONS:
        raise OptionError(f"option 'table' is one of {', '.join(TABLE_OPTIONS)}, not '{table}'")
    known = ("path", "table", *TABLE_OPTIONS[table])
    check_names(given, known, f"format \"warren_store\" has for the table '{table}'")
    path = given.get("path")
    if not path:
        raise OptionError(
            "option 'path' is missing: the data directory of a stopped node, or a backup"
        )
    include_body = parse_boolean(given, "includeBody", True)
    return StoreOptions(
        path=_local_path(path),
        table=table,
        vhost=given.get("vhost"),
        queues=parse_names(given, "queues"),
        seq_from=_seq(given, "seqFrom"),
        seq_to=_seq(given, "seqTo"),
        enqueued_from_ms=parse_time_ms(given, "enqueuedFrom"),
        enqueued_to_ms=parse_time_ms(given, "enqueuedTo"),
        verify=parse_choice(given, "verify", ("crc", "none")),
        include_body=include_body,
        large_bodies=parse_large_bodies(given, include_body, READ_CHOICES),
    )


def _local_path(path: str) -> str:
    """The local path in `path`, which may be a URI such as `file:/with%20space`."""
    if not path.startswith("file:"):
        if "://" in path:
            raise OptionError(
                f"option 'path' is a directory on disks of all of Spark's machines, not {path}: copy it there with the store's own tools, "
                "or restore it there if it is a Parquet backup, whose files 'data/*.parquet' are a table as they are"
            )
        return path
    return unquote(urlsplit(path).path)


def _seq(given: Mapping[str, str], name: str) -> int | None:
    return parse_number(given, name, 0, 0, _SEQ_MAX) if name.lower() in given else None
