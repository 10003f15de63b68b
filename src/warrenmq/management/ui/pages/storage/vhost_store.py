"""The store of one vhost: what its bytes are, garbage, and what was written for them."""

from typing import Any, Final

import htpy as h

from warrenmq.management.ui import figures
from warrenmq.management.ui.elements.bars import Mark, Part, bar
from warrenmq.management.ui.elements.tables import figures_table
from warrenmq.management.ui.pages.storage.file_map import file_map, legend
from warrenmq.management.ui.pages.storage.history import WRITES

# Share of garbage from which on the node frees it by itself.
_THRESHOLD: Final = 0.5

Status = dict[str, Any]


def store_pictures(store: Status) -> h.Node:
    """Bars and figures of a vhost's store."""
    return [
        h.div(".charts")[
            _disk(store),
            _writes(store),
            _garbage("Garbage of persistent large messages", store["persistent"]),
            _garbage("Garbage of transient large messages", store["transient"]),
        ],
        h.div(".charts")[_figures(store), _upkeep(store)],
    ]


def file_maps(files: dict[str, Any]) -> h.Node:
    """The files of a vhost's store as cells."""
    rule = "The node copies what is needed when more than half of all these files is garbage."
    return [
        files["is_backed_up"]
        and h.p(".said", role="status")[
            "A backup is being taken: no file is deleted until it is. "
            f"{figures.count(files['pinned'])} files wait for that."
        ],
        files["left_off"] > 0
        and h.p(".note")[f"{figures.count(files['left_off'])} further files are not shown."],
        legend(),
        h.div(".charts")[
            file_map("Persistent large messages", files["persistent"], rule),
            file_map("Transient large messages", files["transient"], rule),
            file_map(
                "Journal",
                files["journal"],
                "A file leaves the journal when its messages are acked or in an index.",
            ),
            file_map(
                "Journal files that stay",
                files["logs"],
                "They stay for the small messages in them. When more than half of them is "
                "garbage, the rest moves to the indexes.",
            ),
        ],
    ]


def _disk(store: Status) -> h.Element:
    logs = store["logs"] or {"bytes": 0}
    parts = [
        Part("Journal", "c1", store["journal"]["bytes"]),
        Part("Journal files that stay", "c3", logs["bytes"]),
        Part("Indexes", "c4", store["index"]["bytes"]),
        Part("Large persistent", "c2", store["persistent"]["total_bytes"]),
        Part("Large transient", "gamma", store["transient"]["total_bytes"]),
        Part("To be deleted", "c6", store["deletable_bytes"]),
    ]
    needed = figures.size(store["live_bytes"])
    marks = [Mark("needed", store["live_bytes"])] if store["disk_bytes"] else []
    return bar("Bytes on disk", parts, figures.size, marks, f"Some queue needs {needed} of them.")


def _garbage(title: str, contents: Status) -> h.Element:
    total = contents["total_bytes"]
    garbage = contents["garbage_bytes"]
    parts = [
        Part("Garbage", "c5" if garbage > total * _THRESHOLD else "c1", garbage),
        Part("Needed", "c2", contents["valid_bytes"]),
    ]
    marks = [Mark("compaction begins", total * _THRESHOLD)] if total else []
    if contents["is_compacting"]:
        note = "A file is being copied."
    elif contents["wanted_files"]:
        note = f"{figures.count(contents['wanted_files'])} files are to be copied."
    else:
        note = ""
    done = f"{figures.count(contents['compactions'])} compactions since the start. "
    return bar(title, parts, figures.size, marks, done + note)


def _writes(store: Status) -> h.Element:
    writes = store["writes"]
    title = "Written since the start of the node"
    if writes is None:
        return bar(title, [], figures.size)
    parts = [Part(name, colour, writes[field]) for name, colour, field in WRITES]
    marks = [Mark("published", writes["published_bytes"])] if writes["published_bytes"] else []
    note = f"Write amplification {writes['amplification']:.2f}: bytes written for each published."
    return bar(title, parts, figures.size, marks, note)


def _figures(store: Status) -> h.Element:
    logs = store["logs"] or {"bytes": 0, "live_bytes": 0, "files": 0}
    journal, index = store["journal"], store["index"]
    return figures_table(
        "Parts of the store",
        [
            ("Journal", _part(journal, "files")),
            ("Journal files that stay", _part(logs, "files")),
            ("Indexes", _part(index, "segments")),
            ("Positions in them", figures.count(index["live_positions"])),
            ("Large persistent", _contents(store["persistent"])),
            ("Large transient", _contents(store["transient"])),
        ],
    )


def _part(part: Status, noun: str) -> str:
    return (
        f"{figures.size(part['bytes'])} in {figures.count(part[noun])} {noun}, "
        f"{figures.size(part['live_bytes'])} needed"
    )


def _contents(contents: Status) -> str:
    return (
        f"{figures.size(contents['total_bytes'])} in {figures.count(contents['files'])} files, "
        f"{figures.size(contents['garbage_bytes'])} garbage "
        f"({figures.percent(contents['garbage_bytes'], contents['total_bytes'])})"
    )


def _upkeep(store: Status) -> h.Element:
    behind = "yes: queues page no further until it has" if store["is_behind"] else "no"
    return figures_table(
        "Upkeep",
        [
            ("Waiting to be written", figures.size(store["waiting_bytes"])),
            ("The disk has to catch up", behind),
            ("Debt", f"{figures.size(store['debt_bytes'])} beyond twice what is needed and 1 GiB"),
            ("Deleted by the next checkpoints", figures.size(store["deletable_bytes"])),
            ("Checkpoints", figures.count(store["checkpoints"])),
            ("Checkpoints that failed", figures.count(store["failed_checkpoints"])),
            ("Damaged records", figures.count(store["damaged"])),
            ("Lost messages", figures.count(store["lost"])),
        ],
    )
