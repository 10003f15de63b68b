"""A reader group's part in one queue, as the master of the queue tells its copies."""

from __future__ import annotations

from typing import final

from mypy_extensions import i64


@final
class ReaderPart:
    """How far the group `group` has read a queue, and who may go on.

    Messages below the seq id `acked` are settled, those of [acked, reserved) may be read again.
    `epoch`: the newest opener of the group. `pattern`: that of the names of its queues, "" when
    they were named one by one. `has_lapsed`: the range may lack messages, which nobody has accepted
    yet.
    """

    def __init__(
        self,
        group: bytes,
        epoch: i64,
        pattern: str,
        acked: i64,
        reserved: i64,
        has_lapsed: bool = False,
    ) -> None:
        self.group: bytes = group
        self.epoch: i64 = epoch
        self.pattern: str = pattern
        self.acked: i64 = acked
        self.reserved: i64 = reserved
        self.has_lapsed: bool = has_lapsed
