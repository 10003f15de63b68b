"""Memory monitor: how much of its messages each queue may hold in RAM (S59, S69).

Every interval, the queues that were active report for how many seconds their messages in memory
last at their rates. When the node uses more than the paging ratio of its memory limit, all get the
same desired duration

    D = (average duration + 1 s / number of queues) / r      r = used / limit

(without the second where r >= 0.95; the second lets queues grow again that were all squeezed to
nothing). A queue whose target, D x its rates, has become smaller moves the surplus to disk. A
smaller D is sent to a queue at once, any other at the queue's next report, 5 s after the last.
While the disk alarm is on nothing is paged: D is infinite, and is sent at once.

Beyond the original:

Bytes. As soon as the account (`account.py`) is above BEGIN of what the ratio allows, without
waiting for the interval, active queues must come down to GOAL of that: each keeps the same share of
what it has, or less if D leaves it less. The rest is room for messages that arrive meanwhile and
for messages on their way to the disk.

Idle queues. An idle queue is not asked for reports and keeps what it has. When memory is needed,
idle queues free theirs first, the longest idle before others, and all they hold, in slices; active
queues free what is still missing then. An idle queue that holds next to nothing is left alone,
unless such queues hold nearly everything.

Used memory is the account's sum, unfinished messages included, or the resident set if that is
larger. The resident set counts only up to twice what queues hold: paging cannot regain memory that
was freed but not given back to the system, or that another part of the process uses, and such
memory must not make the queues page for ever.
"""

from typing import Final

from mypy_extensions import i64

from warrenmq.queues.memory.account import FOREVER_S, NO_LIMIT_BYTES, MemoryAccount, MemoryUser

# Time between two reports of an active queue (ms).
REPORT_MS: Final = 5000
# The duration D gets no additional second once the ratio r is this high.
_TIGHT_RATIO: Final = 0.95
_ADDITIONAL_S: Final = 1.0
# Where paging by bytes begins, as a share of what the ratio allows.
BEGIN: Final = 0.9
# Where paging by bytes stops, as a share of where it begins.
GOAL: Final = 0.9
# One part in this many of the limit may be on its way to sockets.
TRANSIT_SHARE: Final = 8
# Time between two reactions to an account that is over (ms).
REACT_MS: Final = 100
# Idle queues that are asked to free memory in one turn.
ASK_SLICE: Final = 32
# An idle queue with less than one part in this many of the needed memory is left alone.
_WORTH_ASKING: Final = 1024


def desired_duration(
    total_s: float,
    count: i64,
    used_bytes: i64,
    limit_bytes: i64,
    paging_ratio: float,
    is_disk_low: bool,
) -> float:
    """D in seconds, for `count` queues whose durations add up to `total_s`."""
    if is_disk_low:
        return FOREVER_S
    if limit_bytes <= 0:
        return 0.0
    ratio = float(used_bytes) / float(limit_bytes)
    if ratio < paging_ratio or ratio == 0 or count == 0:
        return FOREVER_S
    if ratio < _TIGHT_RATIO:
        total_s += _ADDITIONAL_S
    return total_s / float(count) / ratio


class MemoryMonitor:
    """The monitor of one node. Sizes in bytes, times in ms unless named otherwise."""

    def __init__(self, account: MemoryAccount, paging_ratio: float, interval_ms: i64) -> None:
        self.account: MemoryAccount = account
        self.paging_ratio: float = paging_ratio
        self.desired_s: float = FOREVER_S
        self._limit_bytes: i64 = NO_LIMIT_BYTES
        # Resident bytes beside the account, as last measured.
        self._beside_bytes: i64 = 0
        self._is_disk_low: bool = False
        self._interval_ms: i64 = interval_ms
        self._next_tick_ms: i64 = 0
        self._next_reaction_ms: i64 = 0
        # More idle queues are to be asked in the next turn.
        self._is_asking: bool = False

    # -- what the node says ------------------------------------------------------------------------

    def set_limit(self, limit_bytes: i64) -> None:
        """Set the memory limit in bytes (the alarm's; paging begins at the paging ratio of it)."""
        self._limit_bytes = limit_bytes
        self.account.transit.set_room(limit_bytes // TRANSIT_SHARE)
        self._set_page_above()

    def set_resident(self, resident_bytes: i64) -> None:
        """Take a measurement of the resident set in bytes."""
        account = self.account
        self._beside_bytes = max(resident_bytes - account.ram_bytes - account.unfinished_bytes, 0)
        self._set_page_above()

    def set_disk_low(self, is_low: bool, now_ms: i64) -> None:
        """Take a change of the disk alarm."""
        if is_low != self._is_disk_low:
            self._is_disk_low = is_low
            self._set_page_above()
            self._inform(now_ms)

    def used_bytes(self) -> i64:
        """Bytes that count as used; see the module's docstring."""
        accounted = self.account.ram_bytes
        return accounted + self.account.unfinished_bytes + min(self._beside_bytes, accounted)

    # -- time --------------------------------------------------------------------------------------

    def tick(self, now_ms: i64) -> None:
        """Run the monitor if an interval has passed. To be called often."""
        if now_ms < self._next_tick_ms:
            return
        self._next_tick_ms = now_ms + self._interval_ms
        account = self.account
        self._retire_idle()
        for user in account.active:
            if now_ms - user.reported_ms >= REPORT_MS:
                _report(user, now_ms)
        self._inform(now_ms)
        if account.ram_bytes > account.page_above:
            self._react(now_ms)

    def end_turn(self, now_ms: i64) -> None:
        """React, once a turn, to an account that is over, instead of waiting for the interval."""
        if self.account.is_over and now_ms >= self._next_reaction_ms:
            self._react(now_ms)
        elif self._is_asking:
            self._ask_idle()

    # -- the original's part -----------------------------------------------------------------------

    def _retire_idle(self) -> None:
        account = self.account
        active: dict[MemoryUser, bool] = {}
        for user in account.active:
            if user.is_touched:
                user.is_touched = False
                active[user] = True
            else:
                user.is_giving = False
                account.retire(user)
        account.active = active

    def _inform(self, now_ms: i64) -> None:
        """Compute D anew; send it to queues that just reported, and at once to all it concerns."""
        before_s = self.desired_s
        desired_s = self._desired()
        self.desired_s = desired_s
        for user in list(self.account.active):
            is_urgent = False
            if self._is_disk_low:
                is_urgent = user.sent_s < desired_s
            elif desired_s < before_s:
                is_urgent = user.sent_s > desired_s and user.reported_s > desired_s
            if not is_urgent and user.reported_ms != now_ms:
                continue
            if user.is_giving and user.reported_s == FOREVER_S and not self._is_disk_low:
                # The queue is freeing all it has and is idle otherwise.
                continue
            user.is_giving = False
            _tell(user, desired_s)

    def _desired(self) -> float:
        total_s = 0.0
        count: i64 = 0
        for user in self.account.active:
            if user.reported_s != FOREVER_S:
                total_s += user.reported_s
                count += 1
        return desired_duration(
            total_s,
            count,
            self.used_bytes(),
            self._limit_bytes,
            self.paging_ratio,
            self._is_disk_low,
        )

    # -- the account is over -----------------------------------------------------------------------

    def _set_page_above(self) -> None:
        """Set the limits of the account, so that `used_bytes` stays near the paging ratio."""
        account = self.account
        if self._is_disk_low:
            account.page_above = NO_LIMIT_BYTES
            account.stop_above = NO_LIMIT_BYTES
            return
        allowed = min(float(self._limit_bytes) * self.paging_ratio, float(NO_LIMIT_BYTES))
        threshold: i64 = int(allowed * BEGIN)
        # Unfinished messages take room from the queues, up to three quarters of it.
        room: i64 = max(threshold - account.unfinished_bytes, threshold // 4)
        account.page_above = max(room - self._beside_bytes, room // 2)
        account.stop_above = account.page_above + (int(allowed) - threshold)
        if account.ram_bytes > account.page_above and not account.is_over:
            account.rise()

    def _react(self, now_ms: i64) -> None:
        """Bring the account down to its goal."""
        account = self.account
        account.is_over = False
        # Asking many active queues takes time, so the pause between reactions grows with them.
        self._next_reaction_ms = now_ms + max(REACT_MS, len(account.active) // 10)
        if account.ram_bytes > account.page_above:
            self._ask_idle()
            self._squeeze_active(now_ms)

    def _goal_bytes(self) -> i64:
        return int(float(self.account.page_above) * GOAL)

    def _ask_idle(self) -> None:
        """Ask idle queues to free what they hold, until that is enough.

        The next slice follows in the next turn.
        """
        account = self.account
        goal = self._goal_bytes()
        need = account.ram_bytes - goal
        for user in account.active:
            if user.is_giving:
                need -= user.ram_bytes
        least: i64 = need // _WORTH_ASKING if account.idle_bytes <= goal // 2 else 0
        chosen: list[MemoryUser] = []
        self._is_asking = False
        for user in account.idle:
            if need <= 0:
                break
            if user.ram_bytes > least:
                if len(chosen) == ASK_SLICE:
                    self._is_asking = True
                    break
                chosen.append(user)
                need -= user.ram_bytes
        for user in chosen:
            account.activate(user, user.ram_bytes)
            user.is_giving = True
            _tell(user, 0.0)
        if self._is_asking:
            account.wake_again()

    def _squeeze_active(self, now_ms: i64) -> None:
        """Make active queues free what idle ones do not.

        Each keeps the same share, and no more than D allows.
        """
        account = self.account
        total_bytes: i64 = 0
        count: i64 = 0
        for user in account.active:
            if not user.is_giving:
                total_bytes += user.ram_bytes
                count += 1
        # Idle queues that will be asked in later turns count as if they held nothing.
        left = self._goal_bytes() - (0 if self._is_asking else account.idle_bytes)
        if total_bytes <= left:
            return
        # Queues with not much less than the average hold most of the bytes; skip the others.
        least = total_bytes // count // 4
        heavy: list[MemoryUser] = []
        heavy_bytes: i64 = 0
        for user in account.active:
            if not user.is_giving and user.ram_bytes > least:
                heavy.append(user)
                heavy_bytes += user.ram_bytes
        left -= total_bytes - heavy_bytes
        share = float(max(left, 0)) / float(heavy_bytes)
        for user in heavy:
            _report(user, now_ms)
        desired_s = self._desired()
        for user in heavy:
            if user.reported_s == FOREVER_S:
                # The queue has no rate to measure its share with, so it does nothing: ask for all.
                user.is_giving = True
                _tell(user, 0.0)
            else:
                # The queue reports half of what its messages last at its rates: twice is all.
                _tell(user, min(desired_s, 2.0 * user.reported_s * share))


def _report(user: MemoryUser, now_ms: i64) -> None:
    user.sample_rates(now_ms)
    user.reported_s = user.duration_s()
    user.reported_ms = now_ms


def _tell(user: MemoryUser, seconds: float) -> None:
    user.sent_s = seconds
    user.set_duration(seconds)
