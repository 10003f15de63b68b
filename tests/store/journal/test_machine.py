"""The journal under crashes, as a state machine.
In whatever order things happen, no confirmed message is lost and no message whose ack is durable
comes back. `tests/support/stores/dict_disk/` has the disk and the oracle.
"""

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from tests.support.stores.dict_disk.journal_driver import JournalDriver
from warrenmq.store.journal.window import WINDOW_BYTES_PER_QUEUE, WINDOW_FILES

FILE_BYTES = 1500
# Junk that may follow a torn write: nothing, zeros of a grown file, stale bytes, the start of a
# record.
JUNK = [b"", bytes(600), b"\xff" * 100, b"WR\x01\x01\xff\xff\xff\xff" * 20, b"\x57\x52"]


class JournalMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.driver = JournalDriver(FILE_BYTES)

    @rule(
        size=st.sampled_from([0, 1, 40, 400, 3000]),
        queue_ids=st.lists(st.sampled_from([1, 2, 3]), min_size=1, max_size=3, unique=True),
        expiry_ms=st.sampled_from([0, 1 << 41]),
        count=st.integers(1, 4),
    )
    def publish(self, size: int, queue_ids: list[int], expiry_ms: int, count: int) -> None:
        for _ in range(count):
            self.driver.publish(size, queue_ids, expiry_ms)

    @precondition(lambda self: self.driver.live)
    @rule(data=st.data())
    def settle_one(self, data: st.DataObject) -> None:
        keys = list(self.driver.live)
        self.driver.settle(keys[data.draw(st.integers(0, len(keys) - 1))])

    @precondition(lambda self: self.driver.live)
    @rule(share=st.floats(0, 1))
    def settle_oldest(self, share: float) -> None:
        keys = list(self.driver.live)
        for key in keys[: int(len(keys) * share)]:
            self.driver.settle(key)

    @precondition(lambda self: self.driver.in_flight is None)
    @rule()
    def seal(self) -> None:
        self.driver.seal()

    @precondition(lambda self: self.driver.in_flight is not None)
    @rule()
    def succeed(self) -> None:
        self.driver.succeed()

    @precondition(lambda self: self.driver.in_flight is None)
    @rule()
    def commit(self) -> None:
        self.driver.commit()

    @precondition(lambda self: self.driver.in_flight is not None)
    @rule(kept=st.sampled_from([0.0, 0.3, 0.7, 0.99, 1.0]))
    def fail(self, kept: float) -> None:
        self.driver.fail(kept)

    @rule()
    def journal_again(self) -> None:
        self.driver.journal_again()

    @precondition(lambda self: self.driver.in_flight is None)
    @rule(is_forced=st.booleans())
    def retire(self, is_forced: bool) -> None:
        self.driver.retire(is_forced)

    @rule(kept=st.sampled_from([0.0, 0.2, 0.5, 0.9, 0.999, 1.0, 2.0]), junk=st.sampled_from(JUNK))
    def crash(self, kept: float, junk: bytes) -> None:
        self.driver.crash(kept, junk if kept <= 1.0 else b"")

    @precondition(lambda self: self.driver.in_flight is None)
    @rule()
    def clean_stop(self) -> None:
        if self.driver.journal.has_pending():
            self.driver.commit()
        self.driver.journal.request_clean_stop()
        self.driver.commit()
        before = dict(self.driver.live)
        self.driver.crash()
        assert self.driver.live.keys() >= {key for key in before if key in self.driver.must}

    @precondition(lambda self: self.driver.in_flight is None)
    @rule()
    def rest(self) -> None:
        driver = self.driver
        driver.settle_down()
        driver.check_accounts()
        window = WINDOW_FILES * FILE_BYTES + WINDOW_BYTES_PER_QUEUE * len(driver.queue_ids)
        # A file may exceed its limit by the batch that filled it.
        largest = max(len(data) for data in driver.files.values()) if driver.files else 0
        assert driver.journal.total_bytes() <= window + largest

    def teardown(self) -> None:
        if self.driver.in_flight is not None:
            self.driver.succeed()
        self.driver.crash()
        super().teardown()


TestJournalMachine = JournalMachine.TestCase
TestJournalMachine.settings = settings(
    max_examples=100,
    stateful_step_count=30,
    report_multiple_bugs=False,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)


def test_acks_of_a_failed_batch_are_written_again() -> None:
    """An ack is written again after its batch failed, a case that random walks may miss."""
    driver = JournalDriver(FILE_BYTES)
    key = driver.publish(40, [1])[0]
    driver.commit()
    driver.settle(key)
    driver.seal()
    driver.fail(0.0)
    driver.commit()
    driver.crash()
    assert driver.live == {}


def test_a_retraction_is_written_again() -> None:
    """A failed publish that reached the disk does not come back, after two failed batches."""
    driver = JournalDriver(FILE_BYTES)
    before = driver.publish(40, [1])[0]
    driver.commit()
    key = driver.publish(40, [1])[0]
    driver.seal()
    driver.fail(1.0)
    driver.settle(key)
    driver.seal()
    driver.fail(0.0)
    driver.commit()
    driver.crash()
    assert list(driver.live) == [before]
