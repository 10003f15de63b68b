"""Losses and damage that a vhost's store has met since it started: counted, and reported for the log."""

from mypy_extensions import i64, mypyc_attr


@mypyc_attr(allow_interpreted_subclasses=True)
class LossReport:
    """Receives each loss; whoever writes the log implements it."""

    def on_damage(self, queue_id: i64, path: str, offset: i64, size: i64) -> None:
        """`size` bytes of a file at `offset` could not be used; lost+found has a copy."""
        raise RuntimeError("abstract")

    def on_lost(self, queue_id: i64, count: i64, first_seq: i64, last_seq: i64, cause: str) -> None:
        """`count` messages of a queue are lost, out of those from `first_seq` to `last_seq`.

        `cause` is one of a few texts.
        """
        raise RuntimeError("abstract")

    def on_content_lost(self, directory: str, content_id: i64) -> None:
        """A content of one of the content stores is lost; nobody looks for the queues that refer to it."""
        raise RuntimeError("abstract")


class Losses:
    """Counts losses; passes them on where there is a `report`."""

    def __init__(self) -> None:
        self.report: LossReport | None = None
        # Messages and contents that are lost.
        self.lost_count: i64 = 0
        # Stretches of files that are no records.
        self.damaged_count: i64 = 0

    def add_damage(self, queue_id: i64, path: str, offset: i64, size: i64) -> None:
        """`size` bytes of a queue's segment at `offset` are no record."""
        self.damaged_count += 1
        if self.report is not None:
            self.report.on_damage(queue_id, path, offset, size)

    def add_messages(
        self, queue_id: i64, count: i64, first_seq: i64, last_seq: i64, cause: str
    ) -> None:
        """`count` messages of a queue are lost, out of those from `first_seq` to `last_seq`."""
        self.lost_count += count
        if self.report is not None:
            self.report.on_lost(queue_id, count, first_seq, last_seq, cause)

    def add_content(self, directory: str, content_id: i64) -> None:
        """A content of the content store with this directory is lost."""
        self.lost_count += 1
        if self.report is not None:
            self.report.on_content_lost(directory, content_id)
