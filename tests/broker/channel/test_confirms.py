"""Against a model, each publish is confirmed once, with the right outcome, and not too early."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tests.support.brokers.memory_broker import MemoryBroker
from warrenmq.broker.channel.confirms import PublishConfirms
from warrenmq.broker.counters import MessageCounters
from warrenmq.broker.latencies import Latencies
from warrenmq.store.journal.confirm_run import ConfirmParty, finish_together
from warrenmq.wire.encode import PROTOCOL_HEADER
from warrenmq.wire.frames import FRAME_METHOD, NEED_DATA, FrameBuffer
from warrenmq.wire.methods import BasicAck, BasicNack, decode_method

CHANNEL = 7


class Publisher:
    """A connection whose output the test reads as confirms of one channel."""

    def __init__(self) -> None:
        link = MemoryBroker().connect()
        link.send(PROTOCOL_HEADER)
        assert link.connection is not None
        self.socket = link.connection
        self.socket.out.take()

    def confirms(self) -> list[tuple[int, bool, bool]]:
        """Return (number, multiple, ok) of each confirm since the last call."""
        frames = FrameBuffer(1 << 20)
        frames.feed(b"".join(self.socket.out.take()))
        found = []
        while (kind := frames.next_frame()) != NEED_DATA:
            assert kind == FRAME_METHOD and frames.channel == CHANNEL
            method = decode_method(frames.data, frames.start, frames.end)
            assert isinstance(method, BasicAck | BasicNack)
            found.append((method.delivery_tag, method.multiple, isinstance(method, BasicAck)))
        return found


class Confirms(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.publisher = Publisher()
        self.confirms = PublishConfirms(
            self.publisher.socket, CHANNEL, MessageCounters(), Latencies()
        )
        # Batches of the journal, which finish in order; the last one gathers.
        self.batches = [ConfirmParty()]
        # Other parties, which finish in any order.
        self.others: list[ConfirmParty] = []
        # Parties that each publish still waits for, by its number; FAILED for each that failed.
        self.waits: dict[int, list[ConfirmParty]] = {}
        # Parties that failed.
        self.failed: set[ConfirmParty] = set()
        # Numbers of refused publishes.
        self.refused: set[int] = set()
        # Numbers of publishes that wait for parties of their own.
        self.alone: set[int] = set()
        # Numbers of publishes without a confirm.
        self.untold: dict[int, bool] = {}

    def publish(self, parties: list[ConfirmParty]) -> int:
        number = len(self.waits) + 1
        self.waits[number] = parties
        self.untold[number] = True
        return number

    @rule(is_for_disk=st.booleans(), count=st.integers(1, 3))
    def add(self, is_for_disk: bool, count: int) -> None:
        for _ in range(count):
            self.publish([self.batches[-1]] if is_for_disk else [])
            self.confirms.add(self.batches[-1], is_for_disk)

    @rule(data=st.data(), with_batch=st.booleans())
    def add_waiting(self, data: st.DataObject, with_batch: bool) -> None:
        parties = [ConfirmParty() for _ in range(data.draw(st.integers(1, 2)))]
        self.others.extend(parties)
        if with_batch:
            parties.append(self.batches[-1])
        self.alone.add(self.publish(list(parties)))
        self.confirms.add_waiting(parties)

    @rule()
    def refuse(self) -> None:
        self.refused.add(self.publish([]))
        self.confirms.refuse()

    @rule()
    def seal(self) -> None:
        self.batches.append(ConfirmParty())

    @rule(ok=st.booleans())
    def finish_batch(self, ok: bool) -> None:
        if len(self.batches) > 1:
            self.finish(self.batches.pop(0), ok)

    @rule(data=st.data(), ok=st.booleans())
    def finish_other(self, data: st.DataObject, ok: bool) -> None:
        if self.others:
            self.finish(self.others.pop(data.draw(st.integers(0, len(self.others) - 1))), ok)

    def finish(self, party: ConfirmParty, ok: bool) -> None:
        if not ok:
            self.failed.add(party)
        for parties in self.waits.values():
            if party in parties:
                parties.remove(party)
                if not ok:
                    parties.append(FAILED)
        party.finish(ok)
        self.look()

    @rule()
    def end_turn(self) -> None:
        self.confirms.confirm_finished()
        self.look()
        late = [
            one for one in self.alone | self.refused if one in self.untold and self.is_decided(one)
        ]
        assert not late, "what is decided waits for no older publish"

    def is_decided(self, number: int) -> bool:
        return all(party is FAILED for party in self.waits[number])

    def look(self) -> None:
        for number, multiple, ok in self.publisher.confirms():
            told = [one for one in self.untold if one <= number] if multiple else [number]
            assert number in told
            for one in told:
                del self.untold[one]
                assert self.is_decided(one), "told before its time"
                if one in self.refused or self.waits[one]:
                    assert not ok
                else:
                    # A publish without a party of its own may share the failure of a batch.
                    assert ok or self.failed

    @invariant()
    def check(self) -> None:
        self.look()
        self.confirms.check()

    def teardown(self) -> None:
        while self.others:
            self.finish(self.others.pop(), True)
        for batch in self.batches:
            self.finish(batch, True)
        self.confirms.confirm_finished()
        self.look()
        assert not self.untold


FAILED = ConfirmParty()
TestConfirms = Confirms.TestCase
TestConfirms.settings = settings(deadline=None, max_examples=100, stateful_step_count=40)


def test_what_is_decided_out_of_turn_is_told_alone() -> None:
    """A publish that is decided out of turn is confirmed alone; the next ones stay in order."""
    publisher = Publisher()
    confirms = PublishConfirms(publisher.socket, CHANNEL, MessageCounters(), Latencies())
    batch, other = ConfirmParty(), ConfirmParty()
    confirms.add(batch, True)
    confirms.refuse()
    confirms.add_waiting([other])
    other.finish(True)
    assert publisher.confirms() == [(2, False, False), (3, False, True)]
    confirms.add(ConfirmParty(), False)
    confirms.confirm_finished()
    assert publisher.confirms() == []
    batch.finish(True)
    assert publisher.confirms() == [(1, False, True), (4, False, True)]
    confirms.check()


def test_neighbours_with_the_same_outcome_share_a_frame() -> None:
    publisher = Publisher()
    confirms = PublishConfirms(publisher.socket, CHANNEL, MessageCounters(), Latencies())
    batches = [ConfirmParty(), ConfirmParty(), ConfirmParty()]
    for batch in batches:
        confirms.add(batch, True)
        confirms.add(batch, False)
    batches[0].finish(True)
    batches[1].finish(False)
    batches[2].finish(True)
    assert publisher.confirms() == [(2, True, True), (4, True, False), (6, True, True)]


def test_each_publish_counts_with_the_time_of_the_oldest_one_of_its_frame() -> None:
    publisher = Publisher()
    latencies = Latencies()
    confirms = PublishConfirms(publisher.socket, CHANNEL, MessageCounters(), latencies)
    first, second = ConfirmParty(), ConfirmParty()
    latencies.now_ns = 1_000
    confirms.add(first, True)
    confirms.add(first, True)
    latencies.now_ns = 2_000
    confirms.add_waiting([first, second])
    latencies.now_ns = 5_000
    finish_together([first, second], True)
    assert latencies.confirms.counts[0] == 3
    assert latencies.confirms.total == 3 * 4_000
    confirms.add(ConfirmParty(), False)
    confirms.confirm_finished()
    confirms.add(first, True)
    first.finish(False)
    assert latencies.confirms.counts[0] == 3, "one has waited for nothing, one was not confirmed"
