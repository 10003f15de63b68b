"""A mark and the runs beside it tell exactly which live messages of a queue were handed out."""

from hypothesis import given
from hypothesis import strategies as st

from warrenmq.store.model.delivered import DeliveredRuns
from warrenmq.store.model.runs import Runs, add_run, check_runs, contains, overlapping

SEQS = 24
STEPS = st.lists(
    st.tuples(st.sampled_from(["consume", "reserve", "leave", "settle"]), st.integers(0, SEQS)),
    max_size=60,
)


class Ledger:
    """A queue of SEQS messages, the ready ones in order."""

    def __init__(self) -> None:
        self.runs = DeliveredRuns()
        self.upto = 0
        self.ready = list(range(1, SEQS + 1))
        self.live = set(self.ready)
        self.handed_out: set[int] = set()
        self.leaving: set[int] = set()

    def step(self, what: str, number: int) -> None:
        """`what` happens: to the head, to some messages from place `number` on, or to `number`."""
        if what == "settle" and number in self.live and number not in self.ready:
            self.live.remove(number)
            self.runs.forget_spared(number, number)
        elif what in ("consume", "leave") and self.ready:
            head = self.ready.pop(0)
            if what == "consume":
                self.upto = max(self.upto, head)
                self.handed_out.add(head)
            else:
                self.runs.spare(head)
        elif what == "reserve" and number < len(self.ready):
            taken = self.ready[number : number + 3]
            del self.ready[number : number + 3]
            self.upto = int(self.runs.add(taken[0], taken[-1], self.upto))
            self.handed_out.update(taken)


@given(STEPS)
def test_each_live_message_is_in_the_set_or_not(steps: list[tuple[str, int]]) -> None:
    ledger = Ledger()
    for step in steps:
        ledger.step(*step)
        mark, above = ledger.runs.without_spared(ledger.upto)
        check_runs(above)
        for seq in ledger.live:
            is_handed_out = seq in ledger.handed_out
            assert ledger.runs.contains(seq, ledger.upto) == is_handed_out
            assert (seq <= mark or contains(above, seq)) == is_handed_out


@given(st.lists(st.tuples(st.booleans(), st.integers(1, SEQS)), max_size=80))
def test_a_mirror_has_no_more_runs_than_live_messages(steps: list[tuple[bool, int]]) -> None:
    """Messages are delivered and settled in any order; a gap between runs has a live message."""
    runs = DeliveredRuns()
    upto = 0
    delivered: set[int] = set()
    gone: set[int] = set()
    dropped: Runs = []
    for is_settled, seq in steps:
        if is_settled:
            gone.add(seq)
            add_run(dropped, seq, seq)
        elif seq not in gone:
            delivered.add(seq)
            upto = int(runs.add(seq, seq, upto))
        # As `MirrorBacking` does.
        for run in overlapping(dropped, seq - 1, seq + 1):
            upto = int(runs.close_gap(*run, upto))
        check_runs(runs.above)
        live = set(range(1, SEQS + 1)) - gone
        assert {seq for seq in live if runs.contains(seq, upto)} == delivered - gone
        ends = [upto, *(last for _, last in runs.above)]
        for end, (first, _) in zip(ends, runs.above, strict=False):
            assert live & set(range(end + 1, first))
