"""Samples against a plain list of all that was told, and rates."""

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.management.statistics.fed import Fed, told
from warrenmq.admin.protocol.changes import NODE, QUEUE
from warrenmq.management.statistics.history import Range
from warrenmq.management.statistics.retention import TICK_MS

RANGES = (
    Range(600, 5),
    Range(60, 5),
    Range(3600, 60),
    Range(400, 100),
    Range(28_800, 600),
    Range(86_400, 1800),
    Range(604_800, 172_800),
)
# Resolutions: the interval and the span (s).
SHORT = {5: 605, 60: 3660}
LONG = {**SHORT, 600: 29_400, 1800: 606_600}
# Ticks from one to the next that comes: most are the next, some come after hours or days.
PASSED = st.one_of(st.integers(1, 3), st.integers(1, 800), st.integers(1, 20_000))
HISTORY = st.lists(st.tuples(PASSED, st.integers(0, 3), st.integers(-5, 5)), max_size=25)
Told = list[tuple[int, int]]


def samples(fed: Fed, kind: str, figure: str, asked: Range) -> Told:
    """(time, value) of the samples of the object `q` of a kind, newest first."""
    shown = fed.statistics.find(kind, "/", "q").details(figure, asked=asked)
    return [(each["timestamp"], each["sample"]) for each in shown["samples"]]


def expected(fed: Fed, history: Told, asked: Range, spans_s: dict[int, int]) -> Told:
    """The samples by a look at the (time, value) of all ticks."""
    reaching = [step_s for step_s, span_s in spans_s.items() if span_s >= asked.age_s]
    fitting = [step_s for step_s in reaching if step_s <= asked.step_s]
    interval_s = fitting[-1] if fitting else reaching[0] if reaching else max(spans_s)
    interval_ms, span_ms, step_ms = (
        interval_s * 1000,
        spans_s[interval_s] * 1000,
        asked.step_s * 1000,
    )
    open_ms = history[-1][0] // interval_ms * interval_ms
    newest_ms = fed.now_ms - fed.now_ms % step_ms
    found = []
    for time_ms in range(newest_ms, newest_ms - asked.age_s * 1000 - 1, -step_ms):
        end_ms = time_ms - time_ms % interval_ms
        if end_ms > open_ms - span_ms and any(
            end_ms - interval_ms <= at_ms < end_ms for at_ms, _ in history
        ):
            values = [value for at_ms, value in history if at_ms < end_ms]
            found.append((time_ms, values[-1]))
    return found


@settings(max_examples=40)
@given(HISTORY)
def test_samples_are_the_values_that_were_told(steps: list[tuple[int, int, int]]) -> None:
    fed = Fed()
    publish, ready = 40, 7
    published: Told = []
    lengths: Told = []
    for passed, by, change in [*steps, (1, 0, 0)]:
        published.append((fed.now_ms, publish))
        lengths.append((fed.now_ms, ready))
        fed.tell(NODE, told(NODE, 1, "n", publish=publish))
        fed.tell(QUEUE, told(QUEUE, 1, "q", publish=publish, messages_ready=ready))
        fed.tick(passed_ms=passed * TICK_MS)
        publish += by
        ready = max(0, ready + change)
    for asked in RANGES:
        assert samples(fed, QUEUE, "publish", asked) == expected(fed, published, asked, SHORT)
        assert samples(fed, QUEUE, "messages_ready", asked) == expected(fed, lengths, asked, SHORT)
        assert samples(fed, NODE, "publish", asked) == expected(fed, published, asked, LONG)
        # The node sums up the lengths of its queues.
        assert samples(fed, NODE, "messages_ready", asked) == expected(fed, lengths, asked, LONG)


def test_a_rate_is_that_of_the_last_tick() -> None:
    fed = Fed()
    fed.tell(QUEUE, told(QUEUE, 1, "q", publish=1000))
    fed.tick()
    view = fed.statistics.find(QUEUE, "/", "q")
    assert (view.value("publish"), view.rate("publish")) == (1000, 0)
    fed.tell(QUEUE, told(QUEUE, 1, "q", publish=1100, ack=50))
    fed.tell(QUEUE, told(QUEUE, 2, "new", publish=10))
    fed.tick()
    view = fed.statistics.find(QUEUE, "/", "q")
    assert view.details("publish", asked=None) == {"rate": 20.0}
    assert view.rate("publish", "ack") == 30.0
    assert fed.statistics.find(QUEUE, "/", "new").rate("publish") == 2.0
    fed.tick()
    assert view.rate("publish") == 0


def test_a_silent_node_has_no_rates() -> None:
    fed = Fed()
    for publish in (0, 100):
        fed.tell(QUEUE, told(QUEUE, 1, "q", publish=publish))
        fed.tick()
    assert fed.statistics.find(QUEUE, "/", "q").rate("publish") == 20.0
    fed.now_ms += 10 * TICK_MS
    assert fed.statistics.find(QUEUE, "/", "q").rate("publish") == 0


def test_averages_are_taken_over_the_samples() -> None:
    fed = Fed()
    for publish in (10, 20, 40, 70):
        fed.tell(QUEUE, told(QUEUE, 1, "q", publish=publish))
        fed.tick()
    shown = fed.statistics.find(QUEUE, "/", "q").details("publish", asked=Range(60, 5))
    assert [each["sample"] for each in shown["samples"]] == [70, 40, 20, 10]
    assert (shown["avg"], shown["avg_rate"]) == (35.0, 4.0)


def test_ticks_that_drift_leave_no_gap() -> None:
    fed = Fed()
    for tick in range(200):
        fed.tell(QUEUE, told(QUEUE, 1, "q", publish=51 * tick))
        fed.tick(passed_ms=TICK_MS + 100)
    times = [at_ms for at_ms, _ in samples(fed, QUEUE, "publish", Range(600, 5))]
    assert len(times) > 100
    assert {newer - older for newer, older in itertools.pairwise(times)} == {TICK_MS}
    assert fed.statistics.find(QUEUE, "/", "q").rate("publish") == 10.0
