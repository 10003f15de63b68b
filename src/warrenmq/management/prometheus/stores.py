"""The metrics of the stores: journal, index, contents, checkpoints, bytes written, debt.

Each vhost has a store of its own, so all have the label `vhost`.
"""

from collections.abc import Callable, Iterable
from typing import Final

from warrenmq.admin.protocol.figures import ContentStatus, VhostStatus, WriteStatus
from warrenmq.management.prometheus.metrics import WARREN, Family, Kind, Metric, family, of_each


def _own(
    name: str, kind: Kind, text: str, value: Callable[[VhostStatus], float | None]
) -> Metric[VhostStatus]:
    return Metric(name, kind, text, value, WARREN)


def _content(
    name: str, kind: Kind, text: str, value: Callable[[ContentStatus], float | None]
) -> Metric[ContentStatus]:
    return Metric(f"msg_store_{name}", kind, text, value, WARREN)


_JOURNAL: Final = (
    _own("journal_bytes", "gauge", "Size of the journal in bytes", lambda v: v.journal.bytes),
    _own(
        "journal_live_bytes",
        "gauge",
        "Bytes of the journal's records that some queue needs",
        lambda v: v.journal.live_bytes,
    ),
    _own("journal_files", "gauge", "Files of the journal", lambda v: v.journal.files),
    _own(
        "content_log_bytes",
        "gauge",
        "Bytes of journal files that stay for their contents",
        lambda v: v.logs.bytes if v.logs else None,
    ),
    _own(
        "content_log_live_bytes",
        "gauge",
        "Live bytes of journal files that stay for their contents",
        lambda v: v.logs.live_bytes if v.logs else None,
    ),
    _own(
        "content_log_files",
        "gauge",
        "Journal files that stay for their contents",
        lambda v: v.logs.files if v.logs else None,
    ),
    _own(
        "index_bytes", "gauge", "Size of all segments of indexes in bytes", lambda v: v.index.bytes
    ),
    _own(
        "index_live_bytes",
        "gauge",
        "Live bytes of all segments of indexes",
        lambda v: v.index.live_bytes,
    ),
    _own("index_segments", "gauge", "Segments of indexes", lambda v: v.index.segments),
)
_DISK: Final = (
    _own("disk_bytes", "gauge", "Bytes of the store on disk", lambda v: v.disk_bytes),
    _own("live_bytes", "gauge", "Bytes on disk that some queue needs", lambda v: v.live_bytes),
    _own(
        "debt_bytes",
        "gauge",
        "Bytes on disk beyond twice the live bytes and the allowance",
        lambda v: v.debt_bytes,
    ),
    _own(
        "deletable_bytes",
        "gauge",
        "Bytes of files that the next checkpoints delete",
        lambda v: v.deletable_bytes,
    ),
    _own(
        "waiting_write_bytes",
        "gauge",
        "Bytes that wait to be written beside the journal",
        lambda v: v.waiting_bytes,
    ),
    _own("disk_behind", "gauge", "is 1 while the disk is behind", lambda v: float(v.is_behind)),
    _own("checkpoints", "counter", "Checkpoints taken", lambda v: v.checkpoints),
    _own(
        "failed_checkpoints", "counter", "Checkpoints that failed", lambda v: v.failed_checkpoints
    ),
    _own("damaged_records", "counter", "Damaged records found", lambda v: v.damaged),
    _own("lost_messages", "counter", "Messages lost through damage", lambda v: v.lost),
    _own(
        "delayed_messages",
        "gauge",
        "Messages that wait at delayed exchanges",
        lambda v: v.delayed,
    ),
)
_READERS: Final = (
    _own("reader_groups", "gauge", "Reader groups", lambda v: v.groups),
    _own(
        "reader_groups_held_messages",
        "gauge",
        "Messages that reader groups have reserved",
        lambda v: v.group_held,
    ),
    _own(
        "reader_groups_lag_messages",
        "gauge",
        "Messages that reader groups have not acked",
        lambda v: v.group_lag,
    ),
)
STORES: Final = (*_JOURNAL, *_DISK, *_READERS)
CONTENTS: Final = (
    _content("files", "gauge", "Files of large contents", lambda c: c.files),
    _content("bytes", "gauge", "Bytes of large contents", lambda c: c.total_bytes),
    _content("valid_bytes", "gauge", "Bytes that some queue needs", lambda c: c.valid_bytes),
    _content(
        "garbage_ratio",
        "gauge",
        "Share of the bytes that no queue needs",
        lambda c: c.garbage_bytes / c.total_bytes if c.total_bytes else 0.0,
    ),
    _content("gc_runs", "counter", "Compactions", lambda c: c.compactions),
)
_KINDS: Final[dict[str, Callable[[WriteStatus], int]]] = {
    "journal": lambda w: w.journal_bytes,
    "content": lambda w: w.content_bytes,
    "index": lambda w: w.index_bytes,
    "rewritten": lambda w: w.rewritten_bytes,
    "compacted": lambda w: w.compacted_bytes,
    "checkpoint": lambda w: w.checkpoint_bytes,
}
PUBLISHED: Final = _own(
    "published_bytes",
    "counter",
    "Bytes of persistent messages that clients published",
    lambda v: v.writes.published_bytes if v.writes else None,
)
AMPLIFICATION: Final = _own(
    "write_amplification",
    "gauge",
    "Bytes written to disk for each byte published since the start of the node",
    lambda v: v.writes.amplification if v.writes else None,
)


def stores(infix: str, vhosts: list[VhostStatus]) -> Iterable[Family]:
    """The stores of `vhosts`."""
    by_vhost = [((vhost.vhost,), vhost) for vhost in vhosts]
    yield from of_each((*STORES, PUBLISHED, AMPLIFICATION), infix, ("vhost",), by_vhost)
    contents = [
        ((vhost.vhost, name), status)
        for vhost in vhosts
        for name, status in (("persistent", vhost.persistent), ("transient", vhost.transient))
    ]
    yield from of_each(CONTENTS, infix, ("vhost", "store"), contents)
    written = [
        ((vhost.vhost, kind), float(size(vhost.writes)))
        for vhost in vhosts
        if vhost.writes is not None
        for kind, size in _KINDS.items()
    ]
    text = "Bytes written to disk by kind"
    yield family(f"{WARREN}_{infix}written_bytes", "counter", text, ("vhost", "kind"), written)
    letters = [
        ((vhost.vhost, reason), float(count))
        for vhost in vhosts
        for reason, count in vhost.dead_letters.items()
    ]
    text = "Messages dead-lettered by reason"
    yield family(f"{WARREN}_{infix}dead_letters", "counter", text, ("vhost", "reason"), letters)
