"""Request and reply of the admin protocol for compactions; `control.py` has the others."""

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
