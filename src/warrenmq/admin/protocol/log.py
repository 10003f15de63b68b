"""Requests and replies of the admin protocol for the last entries of a node's log."""

from typing import Annotated, Literal

from msgspec import Meta, Struct

LogLevel = Literal["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"]
# A place in the log: microseconds since 1970.
LogNumber = Annotated[int, Meta(ge=0, le=1 << 62)]


class ReadLog(Struct, tag="read_log", forbid_unknown_fields=True, frozen=True, kw_only=True):
    """The newest entries of the log that a node has in memory. Reply: LogEntries.

    They have a number between `after` and `before`, which are left out, and a level from `level`
    on. `text` is in the message, the domain or the stack, in upper or lower case. `node` is the
    node that is asked, "": that of the session. Refused (`unreachable`) without a link to it.
    """

    node: Annotated[str, Meta(max_length=255)] = ""
    after: LogNumber = 0
    before: LogNumber = 1 << 62
    level: LogLevel = "debug"
    text: Annotated[str, Meta(max_length=1000)] = ""
    limit: Annotated[int, Meta(ge=1, le=1000)] = 100


class LogEntry(Struct, frozen=True, omit_defaults=True):
    """An event, with the names of fields that it has in a log of JSON.

    `number` grows from entry to entry, also over a restart of the node. Characters of a message
    that cannot be seen are escaped, but for line breaks.
    """

    number: int
    time: str
    level: str
    domain: str
    msg: str
    # The stack of an exception.
    exception: str = ""


class LogEntries(Struct, tag="log_entries", frozen=True):
    """Entries of the log of `node`, the newest first.

    With `has_more` there are older ones that were wanted as well. The node has entries from the
    number `first` to the number `last`; both are 0 when it has none.
    """

    node: str
    entries: list[LogEntry]
    has_more: bool
    first: int
    last: int
