"""Requests and replies of the admin protocol about stores; `control.py` has the others."""

from typing import Annotated, Literal

from msgspec import Meta, Struct

Name = Annotated[str, Meta(max_length=255)]
# The content stores of a vhost.
StoreName = Literal["persistent", "transient"]


class CompactStores(Struct, tag="compact_stores", forbid_unknown_fields=True, frozen=True):
    """Copy the content files with garbage, though they may have too little to be due.

    None: all vhosts, both stores, the node of the session. Reply: CompactionBegun, at once; the
    node copies one file of a store after the other (`ContentStatus.wanted_files`).
    """

    vhost: Name | None = None
    store: StoreName | None = None
    node: Name | None = None


class StoreCompaction(Struct, frozen=True):
    """What is to be copied of one content store: files, and the bytes of garbage in them."""

    vhost: str
    store: StoreName
    files: int
    garbage_bytes: int


class CompactionBegun(Struct, tag="compaction_begun", frozen=True):
    """What `node` is about to copy; nothing of a store without files worth it."""

    node: str
    stores: list[StoreCompaction]


class DescribeFiles(Struct, tag="describe_files", forbid_unknown_fields=True, frozen=True):
    """The files of a vhost's store at the node of the session. Reply: StoreFiles."""

    vhost: Name


class StoreFile(Struct, array_like=True, frozen=True):
    """A file: its number, its bytes, and those of them that some queue needs.

    `is_current`: more is being written to it. `is_copied`: what is needed of it is being copied.
    """

    number: int
    size_bytes: int
    valid_bytes: int
    is_current: bool
    is_copied: bool


class StoreFiles(Struct, tag="store_files", frozen=True):
    """The first files of each kind, in their order; `left_off` counts those behind them.

    `logs`: journal files that stay for the contents in them. `is_backed_up`: a backup is being
    taken, until whose end nothing is deleted.
    """

    journal: list[StoreFile]
    logs: list[StoreFile]
    persistent: list[StoreFile]
    transient: list[StoreFile]
    left_off: int
    is_backed_up: bool
