"""What a vhost's store has lost or found damaged since it started: counted, and told to whoever writes the log."""

from mypy_extensions import i64, mypyc_attr


@mypyc_attr(allow_interpreted_subclasses=True)
class LossReport:
    """Who is told."""

    def on_damage(self, queue_id: i64, path: str, offset: i64, size: i64) -> None:
        """Bytes of a file could not be used; a copy is in lost+found."""
        raise RuntimeError("abstract")

    def on_lost(self, queue_id: i64, count: i64, first_seq: i64, last_seq: i64, cause: str) -> None:
        """Messages of a queue cannot be had any more: so many of those from `first_seq` to `last_seq`.

        `cause` is one of a few texts.
        """
        raise RuntimeError("abstract")

    def on_content_lost(self, directory: str, content_id: i64) -> None:
        """A content in one of the content stores cannot be had any more; nobody looks which queues refer to it."""
        raise RuntimeError("abstract")


class Losses:
    """The counts. Without a `report` nothing is told."""

    def __init__(self) -> None:
        self.report: LossReport | None = None
        # Messages and contents that cannot be had any more.
        self.lost_count: i64 = 0
        # Stretches of files that are no records.
        self.damaged_count: i64 = 0

    def add_damage(self, queue_id: i64, path: str, offset: i64, size: i64) -> None:
        """`size` bytes of a queue's segment at `offset` are no record."""
        self.damaged_count += 1
        if self.report is not None:
            self.report.on_damage(queue_id, path, offset, size)

    def add_messages(self, queue_id: i64, count: i64, first_seq: i64, last_seq: i64, cause: str) -> None:
        """`count` messages of a queue, somewhere from `first_seq` to `last_seq`."""
        self.lost_count += count
        if self.report is not None:
            self.report.on_lost(queue_id, count, first_seq, last_seq, cause)

    def add_content(self, directory: str, content_id: i64) -> None:
        """A content of the content store with this directory."""
        self.lost_count += 1
        if self.report is not None:
            self.report.on_content_lost(directory, content_id)
