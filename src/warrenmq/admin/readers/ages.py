"""Finds out since when the oldest message of reader groups waits."""

from collections.abc import Callable, Iterable

from warrenmq.admin.clock import Clock
from warrenmq.queues.readers.groups import ReaderGroup


def when_ages_known(groups: Iterable[ReaderGroup], clock: Clock, done: Callable[[], None]) -> None:
    """Call `done`, at once or later, when the age of each member's oldest message is known.

    A message on disk is looked up once.
    """
    unknown = [
        member
        for group in groups
        for member in group.members.values()
        if member.lag() > 0 and member.lag_since_ms() < 0
    ]

    def find_later() -> None:
        # A load calls this from its own middle, so look in the next turn.
        clock.call_soon(find)

    def find() -> None:
        while unknown:
            member = unknown.pop()
            if member.queue is not None:
                member.find_oldest(find_later)
                return
        done()

    find()
