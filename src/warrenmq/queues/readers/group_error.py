"""The refusal of a call of a reader group, and the texts that need explaining to its reader."""

from mypy_extensions import i64

from warrenmq.vocabulary.error_codes import DATA_LOSS, MOVED
from warrenmq.vocabulary.names import name_text


class GroupError(Exception):
    """A group refuses a call.

    `code` is one of the constants above, `text` gives the reason in words.
    """

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code: str = code
        self.text: str = text


def acked_text(group: bytes, queue: bytes, acked: i64, position: i64) -> str:
    """Say that `group` has acked `queue` up to `acked`, which is above the wanted `position`."""
    return (
        f"reader group '{name_text(group)}' has acked everything of queue '{name_text(queue)}' "
        f"below position {acked}; position {position} is gone (is the caller's checkpoint an old "
        "copy?)"
    )


def beyond_text(group: bytes, queue: bytes, reserved: i64, position: i64) -> str:
    """Say that `group` has reserved `queue` up to `reserved`, which is below `position`."""
    return (
        f"reader group '{name_text(group)}' has reserved up to position {reserved} of queue "
        f"'{name_text(queue)}'; position {position} is above it (is the group a new one of that "
        "name, or the broker's data directory an old copy?)"
    )


def gone_error(group: bytes, queue: bytes, incarnation: i64) -> GroupError:
    """The refusal of a queue that is deleted."""
    return GroupError(DATA_LOSS, f"{_subject(group, queue, incarnation)} is deleted")


def moved_error(group: bytes, queue: bytes, incarnation: i64) -> GroupError:
    """The refusal of a queue whose master is another node: the reader goes on there."""
    return GroupError(
        MOVED,
        f"{_subject(group, queue, incarnation)} has moved: another node has become its master",
    )


def leaving_error(group: bytes, queue: bytes, incarnation: i64) -> GroupError:
    """The refusal of a queue while the cluster decides that it goes: the reader asks again."""
    return GroupError(
        MOVED,
        f"{_subject(group, queue, incarnation)} was unused, and the cluster is deleting it",
    )


def lapsed_error(
    group: bytes, queue: bytes, incarnation: i64, acked: i64, reserved: i64
) -> GroupError:
    """The refusal of a queue whose master died, and that goes on from a copy not in sync."""
    return GroupError(
        DATA_LOSS,
        f"{_subject(group, queue, incarnation)} has lost messages, as a mirror that was not "
        f"synchronised became its master: any of those from position {acked} on may be missing, "
        f"also of the range [{acked}, {reserved}) that the group had reserved",
    )


def _subject(group: bytes, queue: bytes, incarnation: i64) -> str:
    return (
        f"reader group '{name_text(group)}': queue '{name_text(queue)}' (incarnation {incarnation})"
    )
