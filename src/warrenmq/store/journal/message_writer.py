"""Journal records of messages: small content in the record, large in a content store (S43)."""

from mypy_extensions import i64

from warrenmq.store.contents.store import ContentStore
from warrenmq.store.model.message import Message, MovedMessage, Position
from warrenmq.store.records.content import REFERENCES_MAX, write_publish_ref
from warrenmq.store.records.record import RecordWriter


class MessageWriter:
    """Writes messages to `writer`, and the content of large ones to the content store `contents`.

    A message is large from `embed_below` bytes (address, properties and body) on.
    """

    def __init__(self, writer: RecordWriter, contents: ContentStore, embed_below: i64) -> None:
        self.embed_below: i64 = embed_below
        self._writer: RecordWriter = writer
        self._contents: ContentStore = contents

    def write(self, message: Message, positions: list[Position], first: i64, last: i64) -> i64:
        """Write the record for `positions[first:last]` of `message`; returns its size in bytes.

        The content of a large message goes to the content store, and the record holds a reference
        to it.
        """
        moved = message if isinstance(message, MovedMessage) else None
        if positions[first].content_bytes < self.embed_below or last - first > REFERENCES_MAX:
            return self._writer.add_publish(message, positions, first, last, moved)
        message.content_ref = self._contents.add(message, positions, first, last)
        return write_publish_ref(
            self._writer, message.content_ref, message, positions, first, last, moved
        )
