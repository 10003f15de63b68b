"""The content store under crashes, as a state machine.
No content that a live position needs is lost, in whatever order things happen, and the accounts
agree with a naive model. `tests/support/stores/dict_disk/` has the disk and the model.
"""

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests.support.stores.dict_disk.content_driver import ContentDriver

FILE_BYTES = 1500
PARTS = [0.0, 0.1, 0.5, 0.9, 0.999, 1.0]


class ContentMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.driver = ContentDriver(FILE_BYTES)

    @rule(
        size=st.sampled_from([0, 1, 40, 400, 1400, 3000]),
        references=st.sampled_from([1, 1, 2, 3]),
        count=st.integers(1, 6),
    )
    def publish(self, size: int, references: int, count: int) -> None:
        for _ in range(count):
            self.driver.publish(size, references)

    @precondition(lambda self: self.driver.live)
    @rule(data=st.data())
    def settle_one(self, data: st.DataObject) -> None:
        ids = list(self.driver.live)
        self.driver.settle(ids[data.draw(st.integers(0, len(ids) - 1))])

    @precondition(lambda self: self.driver.live)
    @rule(step=st.integers(1, 5), is_backwards=st.booleans())
    def settle_many(self, step: int, is_backwards: bool) -> None:
        ids = list(self.driver.live)
        for place, content_id in enumerate(reversed(ids) if is_backwards else ids):
            if step == 1 or place % step:
                while content_id in self.driver.live:
                    self.driver.settle(content_id)

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
    @rule(kept=st.sampled_from(PARTS))
    def fail(self, kept: float) -> None:
        self.driver.fail(kept)

    @precondition(lambda self: self.driver.job is None)
    @rule()
    def start_compaction(self) -> None:
        self.driver.start_compaction()

    @precondition(lambda self: self.driver.job is not None)
    @rule(ok=st.sampled_from([True, True, True, False]), kept=st.sampled_from(PARTS))
    def finish_compaction(self, ok: bool, kept: float) -> None:
        self.driver.finish_compaction(ok, kept)

    @precondition(lambda self: self.driver.in_flight is None)
    @rule(deletes=st.booleans())
    def take_checkpoint(self, deletes: bool) -> None:
        self.driver.commit_all()
        self.driver.take_checkpoint(deletes)

    @precondition(lambda self: self.driver.live and self.driver.in_flight is None)
    @rule(data=st.data(), place=st.integers(0, 5000))
    def damage(self, data: st.DataObject, place: int) -> None:
        self.driver.commit_all()
        ids = sorted(self.driver.live.keys() - self.driver.lost)
        if ids:
            self.driver.damage(ids[data.draw(st.integers(0, len(ids) - 1))], place)

    @rule(
        kept=st.sampled_from(PARTS),
        journal_too=st.booleans(),
        copied=st.sampled_from([-1.0, 0.0, 0.3, 0.9, 1.0]),
    )
    def crash(self, kept: float, journal_too: bool, copied: float) -> None:
        recovery = self.driver.crash(kept, journal_too, copied)
        assert recovery.missing_paths == [] and recovery.strange_paths == []
        before = (self.driver.store.checkpoint_rows(), self.driver.store.next_id)
        self.driver.check()
        # A crash during recovery, and a recovery that finds its own results (T34).
        self.driver.recover()
        assert (self.driver.store.checkpoint_rows(), self.driver.store.next_id) == before

    @precondition(lambda self: self.driver.in_flight is None)
    @rule()
    def rest(self) -> None:
        driver = self.driver
        driver.commit_all()
        if driver.job is not None:
            driver.finish_compaction()
        driver.compact_all()
        driver.compact_all()
        store = driver.store
        if store.file_count >= 3:
            # The file that is appended to is not compacted.
            assert store.garbage_bytes <= store.valid_bytes + FILE_BYTES + 3200
        driver.take_checkpoint()
        assert set(driver.disk) == {file.path for file in store.files}

    @invariant()
    def the_accounts_are_right(self) -> None:
        self.driver.check()


TestContentMachine = ContentMachine.TestCase
TestContentMachine.settings = settings(
    max_examples=100,
    stateful_step_count=40,
    report_multiple_bugs=False,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
