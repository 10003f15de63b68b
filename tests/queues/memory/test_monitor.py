"""The memory monitor: RabbitMQ's algorithm by a table, and the additions.
The additions are bytes, idle queues and the disk alarm. The queues are models that obey at once:
exponential averages as rates, a target, and a disk.
"""

import math

import pytest

from warrenmq.queues.memory.account import FOREVER_S, NO_LIMIT_BYTES, MemoryAccount, MemoryUser
from warrenmq.queues.memory.monitor import ASK_SLICE, BEGIN, GOAL, MemoryMonitor, desired_duration

LIMIT = 1_000_000
ENDLESS = 1 << 40


@pytest.mark.parametrize(
    ("durations", "used", "is_disk_low", "expected"),
    [
        # The worked example: (61 / 3) / 0.6.
        ([10.0, 20.0, 30.0], 600_000, False, 33.888_888),
        # Below the paging ratio, without a finite duration, and with the disk alarm.
        ([10.0], 499_999, False, FOREVER_S),
        ([], 900_000, False, FOREVER_S),
        ([10.0], 990_000, True, FOREVER_S),
        ([10.0], 500_000, False, 22.0),
        # All durations are zero: the added second lets the queues grow.
        ([0.0, 0.0], 600_000, False, 0.833_333),
        # Nothing is added when memory is tight.
        ([0.0, 0.0], 950_000, False, 0.0),
        ([10.0], 950_000, False, 10.526_315),
        ([10.0], 949_999, False, 11.578_959),
        ([10.0], 2_000_000, False, 5.0),
    ],
)
def test_the_desired_duration(
    durations: list[float], used: int, is_disk_low: bool, expected: float
) -> None:
    total = sum(durations)
    found = desired_duration(total, len(durations), used, LIMIT, 0.5, is_disk_low)
    assert found == pytest.approx(expected, rel=1e-6)


def test_a_limit_of_zero_leaves_nothing() -> None:
    assert desired_duration(10.0, 1, 5, 0, 0.5, False) == 0.0
    # The disk alarm wins: paging needs disk space.
    assert desired_duration(10.0, 1, 5, 0, 0.5, True) == FOREVER_S


def test_nothing_used_is_not_too_much_even_of_nothing() -> None:
    """With a paging ratio of 0 all messages are paged, and at some moment no memory is used."""
    assert desired_duration(10.0, 1, 0, LIMIT, 0.0, False) == FOREVER_S
    assert desired_duration(10.0, 1, 1, LIMIT, 0.0, False) < FOREVER_S


class Model(MemoryUser):
    """A queue with given rates that pages at once if `obeys` is set."""

    def __init__(
        self, account: MemoryAccount, duration: float = FOREVER_S, rates: float = 0.0
    ) -> None:
        super().__init__(account)
        self.duration = duration
        self.rates = rates
        self.told: list[float] = []
        self.samples = 0
        self.target = ENDLESS
        self.message_bytes = 1
        self.obeys = False

    def sample_rates(self, now_ms: int) -> None:
        self.samples += 1

    def duration_s(self) -> float:
        return self.duration

    def set_duration(self, seconds: float) -> None:
        self.told.append(seconds)
        self.target = ENDLESS if seconds == FOREVER_S else math.trunc(seconds * self.rates)
        if self.obeys and self.ram_bytes > self.target * self.message_bytes:
            self.update(self.target * self.message_bytes)


class Bench:
    """An account and a monitor: paging by bytes begins at 500,000, BEGIN of half the limit."""

    def __init__(self) -> None:
        self.wakes = 0
        self.account = MemoryAccount(self.wake)
        self.monitor = MemoryMonitor(self.account, 0.5 / BEGIN, 2500)
        self.monitor.set_limit(LIMIT)
        self.now_ms = 1_000_000

    def wake(self) -> None:
        self.wakes += 1

    def model(self, ram_bytes: int, duration: float = FOREVER_S, rates: float = 0.0) -> Model:
        model = Model(self.account, duration, rates)
        model.update(ram_bytes)
        return model

    def resident(self, share: float) -> None:
        self.monitor.set_resident(int(LIMIT * share))

    def tick(self, *touched: Model) -> None:
        """Run the next interval, in which the `touched` queues are active."""
        self.now_ms += 2500
        for model in touched:
            model.update(model.ram_bytes)
        self.monitor.tick(self.now_ms)

    def turns(self, count: int = 1) -> None:
        for _ in range(count):
            self.now_ms += 10
            self.monitor.end_turn(self.now_ms)


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_the_worked_example_to_the_target_of_a_queue(bench: Bench) -> None:
    models = [
        bench.model(60_000, 10.0),
        bench.model(60_000, 20.0),
        bench.model(60_000, 30.0, 2000.0),
    ]
    bench.resident(0.35)
    bench.tick(*models)
    assert [model.told for model in models] == [[FOREVER_S]] * 3
    # r = 0.6: the account has 0.3, and the rest of the process another 0.3.
    for model in models:
        model.update(100_000)
    bench.resident(0.6)
    bench.account.page_above = NO_LIMIT_BYTES
    bench.account.is_over = False
    bench.tick(*models)
    assert bench.monitor.desired_s == pytest.approx(33.888_888)
    # A smaller duration goes at once only to queues with a longer one; the others get it at their
    # next report.
    assert [len(model.told) for model in models] == [1, 1, 1]
    bench.tick(*models)
    assert [model.told[1:] for model in models] == [[pytest.approx(33.888_888)]] * 3
    assert models[2].target == 67_777


def test_what_got_smaller_is_told_at_once_to_those_it_concerns(bench: Bench) -> None:
    short, long = bench.model(150_000, 2.0), bench.model(150_000, 100.0)
    bench.tick(short, long)
    bench.resident(0.6)
    bench.account.page_above = NO_LIMIT_BYTES
    bench.account.is_over = False
    bench.tick(short, long)
    # D = (103 / 2) / 0.6 = 85.8
    assert short.told == [FOREVER_S]
    assert long.told == [FOREVER_S, pytest.approx(85.833_333)]
    # A larger duration waits for the report.
    bench.monitor.set_limit(10 * LIMIT)
    bench.tick(short, long)
    assert short.told[1:] == [FOREVER_S]
    assert long.told[2:] == [FOREVER_S]


def test_reports_come_every_five_seconds(bench: Bench) -> None:
    model = bench.model(10, 5.0)
    for _ in range(8):
        bench.tick(model)
    assert model.samples == 4
    # Between two intervals nothing happens.
    bench.monitor.tick(bench.now_ms + 2499)
    assert model.samples == 4


@pytest.mark.parametrize("busy_bytes", [10, 600_000])
def test_idle_queues_are_not_touched(bench: Bench, busy_bytes: int) -> None:
    """Idle queues stay untouched while there is room and while one busy queue fills the memory."""
    idle = [bench.model(10, 5.0) for _ in range(10_000)]
    active = bench.model(10, 10.0, 1000.0)
    bench.tick(active)
    bench.tick(active)
    samples = [model.samples for model in idle]
    tellings = sum(len(model.told) for model in idle)
    assert bench.account.idle_bytes == 100_000
    active.update(busy_bytes)
    for _ in range(20):
        bench.tick(active)
        bench.turns(20)
    assert [model.samples for model in idle] == samples
    assert sum(len(model.told) for model in idle) == tellings
    assert len(bench.account.active) == 1
    assert (active.told[-1] < FOREVER_S) == (busy_bytes > LIMIT / 2)


def test_an_account_that_is_over_does_not_wait_for_the_interval(bench: Bench) -> None:
    model = bench.model(400_000, 100.0, 2000.0)
    bench.tick(model)
    model.obeys = True
    assert bench.wakes == 0
    model.update(500_001)
    assert bench.wakes == 1
    bench.turns()
    # 2 x 100 s x share: the bytes held, scaled to the goal.
    share = 500_000 * GOAL / 500_001
    assert model.told[-1] == pytest.approx(2 * 100.0 * share)
    # The reaction does not repeat before its interval has passed, however much the account rises.
    told = len(model.told)
    model.target = ENDLESS
    model.update(600_000)
    bench.turns(5)
    assert len(model.told) == told
    bench.turns(6)
    assert len(model.told) == told + 1


def test_the_active_ones_keep_the_same_share(bench: Bench) -> None:
    models = [bench.model(300_000, 60.0), bench.model(150_000, 10.0)]
    crumb = bench.model(10, 50.0)
    bench.tick(*models, crumb)
    for model in models:
        model.told.clear()
    crumb.told.clear()
    models[1].update(300_000)
    bench.turns()
    share = (450_000 - 10) / 600_000
    # D = ((60 + 10 + 50 + 1) / 3) / 0.6 is 67.2 s. The first queue gets D, which is below its
    # scaled duration.
    assert models[0].told == [pytest.approx(121 / 3 / 0.60001)]
    assert models[1].told == [pytest.approx(2 * 10.0 * share)]
    assert crumb.told == []


def test_those_idle_for_longest_give_first(bench: Bench) -> None:
    models = [bench.model(100_000) for _ in range(4)]
    active = bench.model(10_000, 50.0, 100.0)
    bench.tick(active)
    # The queues fall idle one after another, the last one first.
    for count in (3, 2, 1, 0):
        bench.tick(active, *models[:count])
    for model in models:
        model.obeys = True
        model.told.clear()
    active.told.clear()
    active.update(110_000)
    bench.turns()
    # 510,000 bytes are held and the goal is 450,000: one queue gives all its bytes.
    assert [model.told for model in models] == [[], [], [], [0.0]]
    assert bench.account.ram_bytes == 410_000
    assert active.told == []
    active.update(260_000)
    bench.turns(11)
    assert [model.told for model in models] == [[], [0.0], [0.0], [0.0]]
    assert active.told == []


def test_what_idle_queues_do_not_have_the_active_ones_give(bench: Bench) -> None:
    idle = bench.model(100_000)
    active = bench.model(100_000, 50.0, 1000.0)
    bench.tick(active)
    bench.tick(active)
    active.update(900_000)
    bench.turns()
    assert idle.told[-1] == 0.0
    assert active.told[-1] == pytest.approx(2 * 50.0 * 450_000 / 900_000)


def test_a_queue_that_is_active_in_name_only_gives_too(bench: Bench) -> None:
    model = bench.model(600_000)
    bench.turns(1)
    assert model.told == [0.0]
    # The queue gets no other duration while it pages.
    bench.tick(model)
    assert model.told == [0.0]
    # After it has paged all and works again, it may use memory as the others do.
    model.update(0)
    bench.tick()
    bench.tick()
    assert not model.is_active
    model.duration = 3.0
    bench.tick(model)
    bench.tick(model)
    assert model.told == [0.0, FOREVER_S]


def test_many_idle_queues_are_asked_in_slices(bench: Bench) -> None:
    idle = [bench.model(1000) for _ in range(450)]
    bench.tick(*idle)
    bench.tick()
    assert bench.account.idle_bytes == 450_000
    for model in idle:
        model.obeys = True
        model.told.clear()
    active = bench.model(450_000, 50.0, 1000.0)
    most = 0
    asked = 0
    for _ in range(40):
        bench.turns()
        told = sum(len(model.told) for model in idle)
        most = max(most, told - asked)
        asked = told
    assert most == ASK_SLICE
    # All idle queues are asked, since the busy queue uses the other half.
    assert asked == 450
    assert bench.account.ram_bytes == 450_000
    assert bench.account.idle_bytes == 0
    assert active.told == []


def test_crumbs_are_left_alone_while_somebody_has_more(bench: Bench) -> None:
    crumbs = [bench.model(10) for _ in range(10_000)]
    large = bench.model(100_000)
    bench.tick()
    bench.tick()
    for model in crumbs:
        model.told.clear()
    active = bench.model(400_000, 50.0, 1000.0)
    bench.turns()
    assert large.told[-1] == 0.0
    assert sum(len(model.told) for model in crumbs) == 0
    # The crumbs hold 100,000 of 600,000 bytes; the busy queue is cut down to the rest of 450,000.
    assert active.told[-1] == pytest.approx(min(51 / 0.6, 2 * 50.0 * 350_000 / 400_000))


def test_the_disk_alarm_stops_paging_at_once_and_its_end_starts_it(bench: Bench) -> None:
    model = bench.model(600_000, 50.0, 1000.0)
    giving = bench.model(100_000)
    bench.tick()
    bench.turns(12)
    assert model.told[-1] < FOREVER_S
    assert giving.told[-1] == 0.0
    bench.monitor.set_disk_low(True, bench.now_ms)
    assert model.told[-1] == giving.told[-1] == FOREVER_S
    count = len(model.told)
    model.update(900_000)
    for _ in range(4):
        bench.tick(model, giving)
        bench.turns(20)
    # Only replies to the queue's reports follow, without a limit.
    assert set(model.told[count:]) == {FOREVER_S}
    bench.monitor.set_disk_low(False, bench.now_ms)
    bench.turns(12)
    assert model.told[-1] == pytest.approx(2 * 50.0 * 350_000 / 900_000)


def test_memory_that_messages_do_not_hold_does_not_make_them_page_for_ever(bench: Bench) -> None:
    model = bench.model(100_000, 50.0, 1000.0)
    bench.resident(0.95)
    for _ in range(4):
        bench.tick(model)
        bench.turns(20)
    assert set(model.told) == {FOREVER_S}
    assert bench.monitor.used_bytes() == 200_000
    # Messages that hold half of the threshold must not grow beyond it while other users hold the
    # rest.
    assert bench.account.page_above == 250_000
    bench.resident(0.2)
    assert bench.account.page_above == 400_000


def test_the_account_is_the_sum(bench: Bench) -> None:
    models = [bench.model(100) for _ in range(3)]
    models[0].update(40)
    bench.tick(models[1])
    bench.tick(models[1])
    models[2].update(7)
    assert bench.account.ram_bytes == 147
    assert bench.account.idle_bytes == 40
    assert list(bench.account.idle) == [models[0]]
    for model in models:
        bench.account.end(model)
    assert (bench.account.ram_bytes, bench.account.idle_bytes) == (0, 0)
    assert (bench.account.active, bench.account.idle) == ({}, {})


class Flooded(Model):
    """A queue under constant publishes, with the rates and durations of S59 and S69."""

    def __init__(self, account: MemoryAccount) -> None:
        super().__init__(account)
        self.obeys = True
        self.message_bytes = 100
        self.arrived = 0
        self.sampled_ms = 0
        self.ram_before = 0

    def publish(self, count: int) -> None:
        self.arrived += count
        self.update(min(int(self.ram_bytes) + count * 100, self.target * 100))

    def sample_rates(self, now_ms: int) -> None:
        if self.sampled_ms == 0:
            self.sampled_ms = now_ms - 5000
        elapsed_s = (now_ms - self.sampled_ms) / 1000
        weight = 2 ** (-elapsed_s / 5)
        if elapsed_s > 0:
            self.rates = self.arrived / elapsed_s * (1 - weight) + self.rates * weight
        self.arrived = 0
        self.sampled_ms = now_ms

    def duration_s(self) -> float:
        messages = int(self.ram_bytes) // 100
        total = messages + self.ram_before
        self.ram_before = messages
        return FOREVER_S if self.rates < 0.01 else total / (4 * self.rates)


def test_a_flood_stays_at_the_threshold(bench: Bench) -> None:
    queue = Flooded(bench.account)
    highest = 0
    for _ in range(3000):
        bench.now_ms += 10
        # 10 MB a second against a threshold of 0.5 MB.
        queue.publish(1000)
        highest = max(highest, bench.account.ram_bytes)
        bench.monitor.tick(bench.now_ms)
        bench.monitor.end_turn(bench.now_ms)
    # The excess is what arrives until the next reaction.
    assert highest < 500_000 + 11 * 100_000
    # After the flood, memory may be used again.
    queue.update(0)
    for _ in range(10):
        bench.tick(queue)
    assert queue.told[-1] == FOREVER_S


def test_paging_begins_before_the_ratio_is_reached(bench: Bench) -> None:
    monitor = MemoryMonitor(bench.account, 0.5, 2500)
    monitor.set_limit(LIMIT)
    assert bench.account.page_above == int(LIMIT * 0.5 * BEGIN)
    monitor.set_limit(0)
    assert bench.account.page_above == 0
    # With a ratio above 1 there is no paging before the alarm, and practically none at all.
    huge = MemoryMonitor(bench.account, 1000.0, 2500)
    huge.set_limit(1 << 50)
    assert bench.account.page_above > 1 << 58
