"""How much memory messages take, those in queues and unfinished ones: sums that are kept, never counted.

Every queue has a `MemoryUser` and tells it, at the end of whatever it does, how many bytes it holds in RAM (`update`).
So the account knows at any moment the total, who has been active since the monitor last looked, and whom to ask for how
much, without a queue that does nothing being touched. When the total rises above `page_above`, the account says so at
once (`is_over`, `wake`); what follows is the monitor's business (`memory_monitor.py`).
"""

from collections.abc import Callable
from typing import Final

from mypy_extensions import i64, mypyc_attr

from warrenmq.queues.transit import Transit

# What an entry in RAM costs, and what its message costs beside address, properties and body. Measured: 240 to 335 bytes
# for both together, with bodies of 0 to 5000 bytes.
ENTRY_BYTES: Final = 144
MESSAGE_BYTES: Final = 160

FOREVER_S: Final = float("inf")
# Bytes that no account exceeds.
NO_LIMIT_BYTES: Final = 1 << 62
# Content (bytes) that a queue may have in memory for its consumers while memory is plenty: more than a disk needs that
# reads while they work. And the share of what is held before paging begins that all active queues have for it together.
AHEAD_BYTES_MAX: Final = 4194304
AHEAD_SHARE: Final = 4


class MemoryAccount:
    """The account of one node. `wake` is called when there is something to do."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self.ram_bytes: i64 = 0
        self.ahead_bytes_max: i64 = AHEAD_BYTES_MAX
        # Bytes that clients have sent and nobody can have yet: bodies that are arriving, uncommitted publishes, kept frames.
        self.unfinished_bytes: i64 = 0
        self.page_above: i64 = NO_LIMIT_BYTES
        # Above, publishers wait for queues that have more to page than fits in a turn.
        self.stop_above: i64 = NO_LIMIT_BYTES
        self.is_over: bool = False
        self.transit: Transit = Transit(NO_LIMIT_BYTES)
        # Users that have been active since the monitor looked, or are asked for what they hold.
        self.active: dict[MemoryUser, bool] = {}
        # The others that hold anything, those that have been idle for longest first, and what they hold together.
        self.idle: dict[MemoryUser, bool] = {}
        self.idle_bytes: i64 = 0
        self._wake: Callable[[], None] = wake

    def ahead_room(self) -> i64:
        """Content (bytes) that each queue may have in memory for its consumers, beside what need not be paged."""
        return min(
            self.page_above // (AHEAD_SHARE * max(len(self.active), 1)), self.ahead_bytes_max
        )

    def activate(self, user: "MemoryUser", ram_bytes: i64) -> None:
        """`user`, which held so much while it was idle, does something again, or is to do something."""
        user.is_active = True
        self.active[user] = True
        if user in self.idle:
            del self.idle[user]
            self.idle_bytes -= ram_bytes

    def retire(self, user: "MemoryUser") -> None:
        """`user` has not been active for a while; the caller takes it from the active ones."""
        user.is_active = False
        user.reported_s = FOREVER_S
        if user.ram_bytes > 0:
            self.idle[user] = True
            self.idle_bytes += user.ram_bytes

    def rise(self) -> None:
        """The total is above `page_above`."""
        self.is_over = True
        self._wake()

    def wake_again(self) -> None:
        """There is more to do than fits in this turn."""
        self._wake()

    def end(self, user: "MemoryUser") -> None:
        """`user` is no more and holds nothing."""
        user.update(0)
        del self.active[user]


@mypyc_attr(allow_interpreted_subclasses=True)
class MemoryUser:
    """A queue, as the monitor sees it."""

    def __init__(self, account: MemoryAccount) -> None:
        self.account: MemoryAccount = account
        self.ram_bytes: i64 = 0
        self.is_active: bool = False
        # Something happened since the monitor looked.
        self.is_touched: bool = False
        # It is on its vhost's list of those that tell at the end of the turn (`QueueHost.changed`).
        self.is_changed: bool = False
        # For the monitor: the last duration it was told and when, and the last one it told (s).
        self.reported_s: float = FOREVER_S
        self.reported_ms: i64 = 0
        self.sent_s: float = FOREVER_S
        # It is asked for all it holds, because it was idle.
        self.is_giving: bool = False

    def update(self, ram_bytes: i64) -> None:
        """The queue has done something and now holds so much."""
        account = self.account
        before_bytes = self.ram_bytes
        self.ram_bytes = ram_bytes
        account.ram_bytes += ram_bytes - before_bytes
        self.is_touched = True
        if not self.is_active:
            account.activate(self, before_bytes)
        if account.ram_bytes > account.page_above and not account.is_over:
            account.rise()

    # -- what the queue does ---------------------------------------------------------------------------------------

    def report(self, now_ms: i64) -> None:
        """Something happened in this turn: `update` by what the queue holds now."""
        raise RuntimeError("abstract")

    def sample_rates(self, now_ms: i64) -> None:
        """Bring the averages of the queue's rates up to date."""
        raise RuntimeError("abstract")

    def duration_s(self) -> float:
        """How long what it holds lasts at these rates; FOREVER_S when next to nothing happens."""
        raise RuntimeError("abstract")

    def set_duration(self, seconds: float) -> None:
        """Hold no more than what lasts so long; FOREVER_S lifts the limit."""
        raise RuntimeError("abstract")
