"""Records of messages for the journal: small content in the record itself, large content in a content store (S43)."""

from mypy_extensions import i64

from warrenmq.store.content_records import REFERENCES_MAX, write_publish_ref
from warrenmq.store.content_store import ContentStore
from warrenmq.store.message import Message, MovedMessage, Position
from warrenmq.store.record import RecordWriter


class MessageWriter:
    """Writes to `writer`, and gives `contents` what has `embed_below` bytes (address, properties and body) or more."""

    def __init__(self, writer: RecordWriter, contents: ContentStore, embed_below: i64) -> None:
        self.embed_below: i64 = embed_below
        self._writer: RecordWriter = writer
        self._contents: ContentStore = contents

    def write(self, message: Message, positions: list[Position], first: i64, last: i64) -> i64:
        """Write the record of `message` with its `positions[first:last]`, and its content if that is large; the record's size."""
        moved = message if isinstance(message, MovedMessage) else None
        if positions[first].content_bytes < self.embed_below or last - first > REFERENCES_MAX:
            return self._writer.add_publish(message, positions, first, last, moved)
        message.content_ref = self._contents.add(message, positions, first, last)
        return write_publish_ref(
            self._writer, message.content_ref, message, positions, first, last, moved
        )
