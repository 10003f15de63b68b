"""A confirm waits for the journal and every copy in sync; only records shrink that set (I1, I2)."""

from warrenmq.cluster.mirrors.replica.in_sync import BEHIND_MS, HELD_MS, InSync, MirrorParty
from warrenmq.cluster.mirrors.replica.mirror_lag import Sent
from warrenmq.cluster.mirrors.silences import SILENT_MS
from warrenmq.store.journal.confirm_run import ConfirmRun, ConfirmWaiter


class Publishes(ConfirmWaiter):
    """One publish for each turn, with the outcome of those that are decided."""

    def __init__(self, in_sync: InSync) -> None:
        self.in_sync = in_sync
        self.outcomes: dict[int, bool] = {}
        self.parties: dict[int, MirrorParty | None] = {}

    def on_decided(self, run: ConfirmRun) -> None:
        assert run.first not in self.outcomes
        self.outcomes[int(run.first)] = run.ok

    def turn(self, number: int, now_ms: int = 0, durable_here: bool = True) -> None:
        """A turn with one publish, which is in the ring message `number`."""
        self.in_sync.sent.note(Sent(number, number, number, now_ms))
        party = self.in_sync.party()
        run = ConfirmRun(self, number, 1)
        party.runs.append(run)
        sealed = self.parties[number] = self.in_sync.seal(number, now_ms)
        if sealed is not None and durable_here:
            self.in_sync.durable_here(sealed, True)
        self.in_sync.check()


def test_a_confirm_waits_for_every_copy_and_the_journal() -> None:
    in_sync = InSync(1, [b"b", b"c"])
    publishes = Publishes(in_sync)
    publishes.turn(1, durable_here=False)
    in_sync.mark(b"b", 1, 0)
    in_sync.mark(b"c", 1, 0)
    assert publishes.outcomes == {}
    party = publishes.parties[1]
    assert party is not None
    in_sync.durable_here(party, True)
    assert publishes.outcomes == {1: True}
    publishes.turn(2)
    in_sync.mark(b"b", 2, 0)
    assert publishes.outcomes == {1: True}
    in_sync.mark(b"c", 1, 0)
    in_sync.mark(b"d", 2, 0)
    assert publishes.outcomes == {1: True}
    in_sync.mark(b"c", 2, 0)
    assert publishes.outcomes == {1: True, 2: True}


def test_a_turn_without_a_ring_message_waits_for_what_came_before() -> None:
    in_sync = InSync(1, [b"b"])
    publishes = Publishes(in_sync)
    publishes.turn(0)
    assert publishes.outcomes == {0: True}
    assert in_sync.seal(4, 0) is None


def test_marks_only_rise_and_one_mark_finishes_many_turns() -> None:
    in_sync = InSync(1, [b"b"])
    publishes = Publishes(in_sync)
    for number in (1, 2, 3):
        publishes.turn(number)
    in_sync.mark(b"b", 2, 0)
    in_sync.mark(b"b", 1, 0)
    assert in_sync.mark_of(b"b") == 2
    assert publishes.outcomes == {1: True, 2: True}


def test_without_mirrors_the_journal_is_enough() -> None:
    publishes = Publishes(InSync(1, []))
    publishes.turn(1)
    assert publishes.outcomes == {1: True}


def test_a_failed_journal_refuses_its_own_turn_only() -> None:
    in_sync = InSync(1, [b"b"])
    publishes = Publishes(in_sync)
    publishes.turn(1)
    publishes.turn(2, durable_here=False)
    publishes.turn(3)
    party = publishes.parties[2]
    assert party is not None
    in_sync.durable_here(party, False)
    assert publishes.outcomes == {2: False}
    in_sync.mark(b"b", 3, 0)
    assert publishes.outcomes == {1: True, 2: False, 3: True}


def test_a_member_leaves_by_the_record_only() -> None:
    in_sync = InSync(1, [b"b", b"c"])
    publishes = Publishes(in_sync)
    publishes.turn(1, now_ms=100)
    in_sync.mark(b"b", 1, 100)
    assert in_sync.late(100 + SILENT_MS - 1) == set()
    assert in_sync.late(100 + SILENT_MS) == {b"c"}
    assert in_sync.late(100 + SILENT_MS, changed_ms=200) == set(), "the ring has just changed"
    assert in_sync.lacks(b"c") and not in_sync.lacks(b"b")
    assert publishes.outcomes == {}
    in_sync.set_members([b"b"])
    assert publishes.outcomes == {1: True}
    assert in_sync.late(1_000_000) == set()


def test_a_mirror_that_reports_is_late_only_when_far_behind() -> None:
    in_sync = InSync(1, [b"b"])
    publishes = Publishes(in_sync)
    for number in range(1, 20):
        publishes.turn(number)
    in_sync.mark(b"b", 1, SILENT_MS - 100)
    assert in_sync.late(SILENT_MS) == set()
    in_sync.mark(b"b", 2, 5_000)
    assert in_sync.late(5_000 + SILENT_MS - 1) == set()
    in_sync.mark(b"b", 3, 5_000 + SILENT_MS - 1)
    assert in_sync.late(BEHIND_MS) == {b"b"}


def test_a_mirror_that_keeps_nothing_waiting_is_never_late() -> None:
    in_sync = InSync(1, [b"b"])
    assert in_sync.late(1 << 40) == set()
    publishes = Publishes(in_sync)
    publishes.turn(1, now_ms=5)
    in_sync.mark(b"b", 1, 6)
    assert in_sync.late(1 << 40) == set()


def test_an_admitted_mirror_counts_before_it_is_recorded() -> None:
    in_sync = InSync(1, [])
    publishes = Publishes(in_sync)
    publishes.turn(1)
    assert not in_sync.admit(b"b"), "it lacks what is confirmed"
    in_sync.mark(b"b", 1, 0)
    assert in_sync.admit(b"b")
    publishes.turn(2)
    assert publishes.outcomes == {1: True}
    in_sync.set_members([b"b"])
    assert publishes.outcomes == {1: True}
    in_sync.mark(b"b", 2, 0)
    assert publishes.outcomes == {1: True, 2: True}
    assert in_sync.admit(b"b")
    in_sync.set_members([])
    publishes.turn(3)
    assert publishes.outcomes[3], "it was recorded, so the record takes it out"


def test_an_admission_that_fails_is_released() -> None:
    in_sync = InSync(1, [])
    publishes = Publishes(in_sync)
    assert in_sync.admit(b"b")
    publishes.turn(1)
    assert publishes.outcomes == {}
    in_sync.set_members([])
    assert publishes.outcomes == {}
    in_sync.release(b"b")
    assert publishes.outcomes == {1: True}


def test_a_lost_master_refuses_everything() -> None:
    in_sync = InSync(1, [b"b"])
    publishes = Publishes(in_sync)
    publishes.turn(1)
    publishes.turn(2, durable_here=False)
    in_sync.fail()
    assert publishes.outcomes == {1: False, 2: False}
    in_sync.mark(b"b", 2, 0)
    in_sync.set_members([])
    publishes.turn(3)
    assert publishes.outcomes == {1: False, 2: False, 3: False}
    party = publishes.parties[2]
    assert party is not None
    in_sync.durable_here(party, True)
    assert not in_sync.admit(b"b")


def test_a_deleted_queue_confirms_what_waits() -> None:
    in_sync = InSync(1, [b"b"])
    publishes = Publishes(in_sync)
    publishes.turn(1)
    in_sync.end()
    assert publishes.outcomes == {1: True}


def test_below_the_least_number_of_copies_publishes_are_refused() -> None:
    in_sync = InSync(1, [b"b"], min_sync=2)
    publishes = Publishes(in_sync)
    assert not in_sync.refuses()
    publishes.turn(1)
    in_sync.set_members([])
    assert publishes.outcomes == {1: False}
    publishes.turn(2)
    assert publishes.outcomes == {1: False, 2: False}
    in_sync.mark(b"b", 2, 0)
    assert in_sync.admit(b"b") and in_sync.refuses()
    in_sync.set_members([b"b"])
    publishes.turn(3)
    in_sync.mark(b"b", 3, 0)
    assert publishes.outcomes[3]


def test_what_waits_for_too_long_is_refused_until_the_copies_have_it() -> None:
    in_sync = InSync(1, [b"b"])
    publishes = Publishes(in_sync)
    publishes.turn(1, 0)
    publishes.turn(2, 1000)
    in_sync.refuse_overdue(HELD_MS - 1)
    assert publishes.outcomes == {}
    in_sync.refuse_overdue(HELD_MS)
    assert publishes.outcomes == {1: False} and in_sync.refuses()
    publishes.turn(3, HELD_MS)
    assert publishes.outcomes == {1: False, 3: False}
    # The mirror is still to be left out, and counts until that is recorded.
    assert in_sync.lacks(b"b") and in_sync.late(HELD_MS) == {b"b"}
    in_sync.mark(b"b", 1, HELD_MS)
    assert not in_sync.refuses()
    publishes.turn(4, HELD_MS)
    in_sync.set_members([])
    assert publishes.outcomes == {1: False, 2: True, 3: False, 4: True}


def test_a_new_copy_of_a_mirror_begins_without_a_mark() -> None:
    in_sync = InSync(1, [b"b"])
    in_sync.mark(b"b", 5, 0)
    in_sync.forget(b"b")
    assert in_sync.mark_of(b"b") == 0
