"""The two content stores of a vhost, and how far each has reached the disk."""

from mypy_extensions import i64

from warrenmq.store.contents.store import ContentStore
from warrenmq.store.model.message import ContentRef


class StoredContents:
    """One store for contents that outlive restarts, one for the others."""

    def __init__(self, persistent: ContentStore, transient: ContentStore) -> None:
        self.persistent: ContentStore = persistent
        self.transient: ContentStore = transient
        # Contents of `persistent` with ids below this may be read.
        self.written_upto: i64 = 1
        # Contents of `transient` with ids below this may be read.
        self.transient_written_upto: i64 = 1

    def store_of(self, content: ContentRef) -> ContentStore:
        """The store that holds `content`."""
        return self.transient if content.transient else self.persistent

    def is_written(self, content: ContentRef) -> bool:
        """True when `content` may be read."""
        if content.transient:
            return content.id < self.transient_written_upto
        return content.id < self.written_upto
