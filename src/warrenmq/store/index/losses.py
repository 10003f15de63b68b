"""Counts and reports the losses and damage that a vhost's store has met since it started."""

from mypy_extensions import i64, mypyc_attr


@mypyc_attr(allow_interpreted_subclasses=True)
class LossReport:
    """Receives each loss; the writer of the text log implements it."""

    def on_damage(self, queue_id: i64, path: str, offset: i64, size: i64) -> None:
        """Report damage: `size` bytes of a file at `offset` are no record; lost+found has them."""
        raise RuntimeError("abstract")

    def on_lost(self, queue_id: i64, count: i64, first_seq: i64, last_seq: i64, cause: str) -> None:
        """Report that `count` messages of a queue between `first_seq` and `last_seq` are lost.

        Both seq ids are included. `cause` is one of a few fixed texts.
        """
        raise RuntimeError("abstract")

    def on_content_lost(self, directory: str, content_id: i64) -> None:
        """Report a lost content of a content store; nobody searches the queues that refer to it."""
        raise RuntimeError("abstract")


class Losses:
    """Counts losses, and passes them on to `report` if it is set."""

    def __init__(self) -> None:
        self.report: LossReport | None = None
        # Lost messages and contents.
        self.lost_count: i64 = 0
        # Damaged stretches of files: bytes that are no records.
        self.damaged_count: i64 = 0

    def add_damage(self, queue_id: i64, path: str, offset: i64, size: i64) -> None:
        """Count and report damage: `size` bytes of a queue's segment at `offset` are no record."""
        self.damaged_count += 1
        if self.report is not None:
            self.report.on_damage(queue_id, path, offset, size)

    def add_messages(
        self, queue_id: i64, count: i64, first_seq: i64, last_seq: i64, cause: str
    ) -> None:
        """Count and report `count` lost messages of a queue between `first_seq` and `last_seq`."""
        self.lost_count += count
        if self.report is not None:
            self.report.on_lost(queue_id, count, first_seq, last_seq, cause)

    def add_content(self, directory: str, content_id: i64) -> None:
        """Count and report a lost content of the content store with this directory."""
        self.lost_count += 1
        if self.report is not None:
            self.report.on_content_lost(directory, content_id)
