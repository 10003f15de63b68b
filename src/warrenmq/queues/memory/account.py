"""The memory that messages take, in queues or unfinished: running sums, never recounted.

Every queue has a `MemoryUser`, and reports to it, at the end of each operation, how many bytes the
queue holds in RAM (`update`). The account thus always knows the total, which queues have been
active since the monitor last ran, and how much each queue can free, without touching idle queues.
When the total rises above `page_above`, the account says so at once (`is_over`, `wake`); the
monitor does the rest (`monitor.py`).
"""

from collections.abc import Callable
from typing import Final

from mypy_extensions import i64, mypyc_attr

from warrenmq.queues.memory.transit import Transit

# RAM (bytes) of an entry. Measured: 240 to 335 bytes for entry and message together, with bodies of
# 0 to 5000 bytes.
ENTRY_BYTES: Final = 144
# RAM (bytes) of a message beside its address, properties and body; measured with ENTRY_BYTES.
MESSAGE_BYTES: Final = 160

FOREVER_S: Final = float("inf")
# A limit (bytes) that no account exceeds.
NO_LIMIT_BYTES: Final = 1 << 62
# Content (bytes) that a queue may keep in memory for its consumers while memory is plenty: more
# than a disk needs that reads while they work.
AHEAD_BYTES_MAX: Final = 4194304
# One part in this many of `page_above` is for content that all active queues keep for consumers,
# and one for what default queues keep before they page like lazy ones.
AHEAD_SHARE: Final = 4
# Content (bytes) that a default queue keeps in memory while it has neither of these bounds: more
# than consumers take in a tenth of a second, so that those who nearly keep up never read a disk.
DEEP_BYTES_MAX: Final = 67108864


class MemoryAccount:
    """The account of one node. Calls `wake` when the monitor has something to do."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self.ram_bytes: i64 = 0
        self.ahead_bytes_max: i64 = AHEAD_BYTES_MAX
        self.deep_bytes_max: i64 = DEEP_BYTES_MAX
        # Bytes of messages that no client can have yet: bodies that are arriving, uncommitted
        # publishes, kept frames.
        self.unfinished_bytes: i64 = 0
        self.page_above: i64 = NO_LIMIT_BYTES
        # Above this total (bytes), publishers wait for queues with more to page than fits a turn.
        self.stop_above: i64 = NO_LIMIT_BYTES
        self.is_over: bool = False
        self.transit: Transit = Transit(NO_LIMIT_BYTES)
        # Users that have been active since the monitor ran, or that must free all they hold.
        self.active: dict[MemoryUser, bool] = {}
        # The other users that hold anything, the longest idle first.
        self.idle: dict[MemoryUser, bool] = {}
        # Bytes that the idle users hold together.
        self.idle_bytes: i64 = 0
        self._wake: Callable[[], None] = wake

    def ahead_room(self) -> i64:
        """Bytes of content that each queue may keep for consumers, beside what stays anyway."""
        return min(self._share(), self.ahead_bytes_max)

    def deep_room(self) -> i64:
        """Bytes of content in memory from which on a default queue pages like a lazy one."""
        return min(max(self._share(), self.ahead_bytes_max), self.deep_bytes_max)

    def _share(self) -> i64:
        return self.page_above // (AHEAD_SHARE * max(len(self.active), 1))

    def activate(self, user: "MemoryUser", ram_bytes: i64) -> None:
        """Count `user`, which held `ram_bytes` while idle, as active, as it has something to do."""
        user.is_active = True
        self.active[user] = True
        if user in self.idle:
            del self.idle[user]
            self.idle_bytes -= ram_bytes

    def retire(self, user: "MemoryUser") -> None:
        """Count `user` as idle, which the caller has removed from the active ones."""
        user.is_active = False
        user.reported_s = FOREVER_S
        if user.ram_bytes > 0:
            self.idle[user] = True
            self.idle_bytes += user.ram_bytes

    def rise(self) -> None:
        """Wake the monitor, as the total is above `page_above`."""
        self.is_over = True
        self._wake()

    def wake_again(self) -> None:
        """Wake the monitor for the next turn, as there is more to do than fits in this one."""
        self._wake()

    def end(self, user: "MemoryUser") -> None:
        """Remove `user`, which no longer exists and holds nothing."""
        user.update(0)
        del self.active[user]


@mypyc_attr(allow_interpreted_subclasses=True)
class MemoryUser:
    """A queue, as the memory monitor sees it."""

    def __init__(self, account: MemoryAccount) -> None:
        self.account: MemoryAccount = account
        self.ram_bytes: i64 = 0
        self.is_active: bool = False
        # The user was updated since the monitor ran.
        self.is_touched: bool = False
        # The user is on its vhost's list of those that report at the end of the turn
        # (`QueueHost.changed`).
        self.is_changed: bool = False
        # The last duration that the queue reported to the monitor (s).
        self.reported_s: float = FOREVER_S
        # When the queue reported it (ms).
        self.reported_ms: i64 = 0
        # The last duration that the monitor set for the queue (s).
        self.sent_s: float = FOREVER_S
        # The monitor asked the queue to free all it holds, because it was idle.
        self.is_giving: bool = False

    def update(self, ram_bytes: i64) -> None:
        """Set the bytes that the queue holds, after it has done something."""
        account = self.account
        before_bytes = self.ram_bytes
        self.ram_bytes = ram_bytes
        account.ram_bytes += ram_bytes - before_bytes
        self.is_touched = True
        if not self.is_active:
            account.activate(self, before_bytes)
        if account.ram_bytes > account.page_above and not account.is_over:
            account.rise()

    # -- what the queue does -----------------------------------------------------------------------

    def report(self, now_ms: i64) -> None:
        """Call `update` with what the queue holds; called in a turn in which it did something."""
        raise RuntimeError("abstract")

    def sample_rates(self, now_ms: i64) -> None:
        """Bring the averages of the queue's rates up to date."""
        raise RuntimeError("abstract")

    def duration_s(self) -> float:
        """Seconds for which the queue's messages in memory last at its rates; FOREVER_S: idle."""
        raise RuntimeError("abstract")

    def set_duration(self, seconds: float) -> None:
        """Keep at most the messages of `seconds` of traffic in memory; FOREVER_S: no limit."""
        raise RuntimeError("abstract")
