"""Queues under every kind of pressure equal lists that do the same, after every step.
One vhost has a durable queue and one that is not durable. The test decides when batches are sealed,
when turns end, when and in which order loads complete, and when the journal needs old files back.
"""

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from simulator.models.mirror import MirrorModel, follow
from tests.support.stores.model_store import ModelHost
from warrenmq.queues.backing.loading import EntryContents, RangeLoad
from warrenmq.queues.backing.variable_queue import EMPTY, UNLIMITED
from warrenmq.queues.entry import ALPHA, Consumer, Entry
from warrenmq.queues.queue import Queue
from warrenmq.store.model.message import ABSENT, Message

ADDRESS = b"\x00\x01q"
QUEUES = st.integers(0, 1)


class Taker(Consumer):
    """A consumer with limited room that hands its messages to the machine."""

    def __init__(self, machine: "QueueMachine", queue: Queue, no_ack: bool) -> None:
        super().__init__(queue, b"c", no_ack, False, 0, 0)
        self.machine = machine
        self.room = 0

    def can_take(self) -> bool:
        return self.room > 0

    def deliver(self, entry: Entry) -> None:
        self.room -= 1
        self.machine.on_taken(entry, self.no_ack)

    def on_queue_deleted(self) -> None:
        pass


class Model:
    """A queue as a list."""

    def __init__(self) -> None:
        # (seq id, body, expiry) of the ready messages; by seq id, of the unacked ones.
        self.ready: list[tuple[int, bytes, int]] = []
        self.out: dict[int, tuple[int, bytes, int]] = {}
        # Messages that expired at the head: the queue may still have them until its next check.
        self.expired: dict[int, tuple[int, bytes, int]] = {}
        # Seq ids that were delivered or held.
        self.delivered: set[int] = set()


class QueueMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.host = ModelHost(embed_below=60, page_batch=4, segment_entries=8)
        self.queues: list[Queue] = []
        self.models: list[Model] = []
        self.mirrors: dict[int, MirrorModel] = {}
        self.takers: list[Taker] = []
        self.bodies = 0
        # A publish gives even a message with a time to live of 0 to a waiting consumer.
        self.is_publishing = False

    @initialize(is_lazy=st.booleans(), ttl_ms=st.sampled_from([-1, -1, -1, 500]))
    def declare(self, is_lazy: bool, ttl_ms: int) -> None:
        for durable in (True, False):
            queue = self.host.declare(durable, is_lazy, ttl_ms)
            self.queues.append(queue)
            self.models.append(Model())
            self.takers.append(Taker(self, queue, not durable))

    # -- what happens ------------------------------------------------------------------------------

    def on_taken(self, entry: Entry, no_ack: bool) -> None:
        """An entry was taken: it has to be the oldest one that has not expired."""
        assert entry.message is not ABSENT and entry.has_content
        number = [queue.ledger.queue_id for queue in self.queues].index(entry.ledger.queue_id)
        model = self.models[number]
        if not self.is_publishing:
            self.expire(number)
        seq, body, expiry_ms = model.ready.pop(0)
        assert (entry.seq, entry.message.body, entry.expiry_ms) == (seq, body, expiry_ms)
        assert entry.redelivered == (seq in model.delivered)
        model.delivered.add(seq)
        if not no_ack:
            model.out[seq] = (seq, body, expiry_ms)
            self.host.out.append(entry)

    def expire(self, number: int) -> None:
        self.note_lost()
        model = self.models[number]
        while model.ready and 0 < model.ready[0][2] <= self.host.now_ms:
            one = model.ready.pop(0)
            model.expired[one[0]] = one

    def my_out(self, number: int) -> list[Entry]:
        return [entry for entry in self.host.out if entry.queue is self.queues[number]]

    @rule(
        number=QUEUES,
        count=st.integers(1, 30),
        size=st.sampled_from([1, 10, 59, 100]),
        persistent=st.booleans(),
        expiration_ms=st.sampled_from([-1, -1, -1, 0, 300]),
    )
    def publish(
        self, number: int, count: int, size: int, persistent: bool, expiration_ms: int
    ) -> None:
        queue = self.queues[number]
        model = self.models[number]
        for _ in range(count):
            self.bodies += 1
            body = b"%0*d" % (size, self.bodies)
            lifetimes = [ms for ms in (queue.settings.message_ttl_ms, expiration_ms) if ms >= 0]
            expiry_ms = self.host.now_ms + min(lifetimes) if lifetimes else 0
            self.expire(number)
            model.ready.append((queue.next_seq, body, expiry_ms))
            self.is_publishing = True
            queue.publish(
                Message(ADDRESS, b"\x00\x00", body, persistent, 0), expiration_ms, self.host.now_ms
            )
            self.is_publishing = False
            self.expire(number)

    @rule(room=st.sampled_from([0, 200, 2000]))
    def set_deep_room(self, room: int) -> None:
        self.host.memory.deep_bytes_max = room

    @rule(number=QUEUES, no_ack=st.booleans())
    def get(self, number: int, no_ack: bool) -> None:
        queue = self.queues[number]
        entry = queue.get(no_ack, self.host.now_ms)
        if entry is not None:
            self.on_taken(entry, no_ack)
        elif queue.head_state(self.host.now_ms) == EMPTY:
            self.expire(number)
            assert self.models[number].ready == []
        else:
            queue.when_head(lambda now_ms: None)

    @rule(number=QUEUES, room=st.integers(0, 9))
    def give_room(self, number: int, room: int) -> None:
        taker = self.takers[number]
        queue = self.queues[number]
        if taker not in queue.consumers:
            taker.is_cancelled = False
            queue.add_consumer(taker)
        taker.room = room
        queue.consumer_can_take(taker)
        queue.deliver_ready(self.host.now_ms)

    @rule(number=QUEUES)
    def cancel(self, number: int) -> None:
        self.queues[number].remove_consumer(self.takers[number], self.host.now_ms)

    @rule(number=QUEUES, data=st.data())
    def ack(self, number: int, data: st.DataObject) -> None:
        for entry in self.some_out(number, data):
            del self.models[number].out[int(entry.seq)]
            self.host.settle(entry)

    @rule(number=QUEUES, data=st.data())
    def requeue(self, number: int, data: st.DataObject) -> None:
        entries = self.some_out(number, data)
        if not entries:
            return
        model = self.models[number]
        for entry in entries:
            model.ready.append(model.out.pop(int(entry.seq)))
        model.ready.sort()
        self.host.requeue(*entries)
        self.expire(number)

    @rule(number=QUEUES, data=st.data())
    def put_back(self, number: int, data: st.DataObject) -> None:
        """Messages return that never reached the client, as when its node is gone."""
        entries = [one for one in self.some_out(number, data) if not one.redelivered]
        if not entries:
            return
        model = self.models[number]
        for entry in entries:
            model.ready.append(model.out.pop(int(entry.seq)))
            model.delivered.remove(int(entry.seq))
            self.host.out.remove(entry)
        model.ready.sort()
        # What comes behind a later message is marked.
        last = max(model.delivered, default=0)
        model.delivered.update(int(entry.seq) for entry in entries if entry.seq < last)
        self.queues[number].put_back(entries, self.host.now_ms)
        self.expire(number)

    def some_out(self, number: int, data: st.DataObject) -> list[Entry]:
        out = self.my_out(number)
        places = data.draw(st.sets(st.integers(0, len(out) - 1), max_size=6)) if out else set()
        return [out[place] for place in sorted(places)]

    @rule(number=QUEUES)
    def purge(self, number: int) -> None:
        self.queues[number].purge(self.host.now_ms)
        self.models[number].ready = []

    @rule(number=QUEUES, data=st.data(), max_messages=st.integers(1, 9))
    def hold(self, number: int, data: st.DataObject, max_messages: int) -> None:
        """A reader group reserves a range, from memory or from disk."""
        queue = self.queues[number]
        model = self.models[number]
        first = data.draw(st.integers(0, queue.next_seq))
        if not queue.backing.ready.is_on_disk(first):
            self.on_held(number, queue.backing.reserve(first, max_messages, 1 << 40), first)
            return

        def arrived(entries: list[Entry]) -> None:
            self.on_held(number, entries, first)

        unacked = [seq for seq in model.out if seq >= first]
        end = min([*unacked, 1 << 60])
        queue.backing.loader.submit(
            RangeLoad(queue.backing, first, end, max_messages, 1 << 40, True, arrived)
        )

    def on_held(self, number: int, entries: list[Entry], first: int) -> None:
        self.note_lost()
        model = self.models[number]
        if not entries:
            return
        for entry in list(entries):
            if int(entry.seq) in model.expired:
                model.ready.append(model.expired.pop(int(entry.seq)))
        model.ready.sort()
        ready = [one for one in model.ready if one[0] >= first][: len(entries)]
        assert [entry.seq for entry in entries] == [one[0] for one in ready]
        for entry, one in zip(entries, ready, strict=True):
            model.ready.remove(one)
            model.out[one[0]] = one
            model.delivered.add(one[0])
            assert entry.form != ALPHA or entry.message.body == one[1]
        self.host.out.extend(entries)

    @rule(number=QUEUES, most=st.sampled_from([0, 1, 3, 10, 40, int(UNLIMITED)]))
    def set_target(self, number: int, most: int) -> None:
        self.queues[number].backing.memory.set_target(most)

    @rule(number=QUEUES, is_lazy=st.booleans())
    def set_mode(self, number: int, is_lazy: bool) -> None:
        self.queues[number].backing.memory.set_mode(is_lazy)

    @rule(commit=st.booleans())
    def seal(self, commit: bool) -> None:
        self.host.seal()
        if commit:
            self.host.commit()

    @rule()
    def commit(self) -> None:
        self.host.commit()

    @rule(number=QUEUES, data=st.data(), limit=st.integers(1, 5))
    def retire(self, number: int, data: st.DataObject, limit: int) -> None:
        queue = self.queues[number]
        upto = data.draw(st.integers(0, queue.next_seq))
        if queue.backing.index_upto(upto, limit):
            assert queue.ledger.indexed_upto >= upto

    @rule()
    def turn(self) -> None:
        self.host.turn()

    @rule(
        number=QUEUES,
        most=st.sampled_from([0, 0, 5, 20]),
        turns=st.integers(1, 6),
        is_lazy=st.booleans(),
    )
    def press(self, number: int, most: int, turns: int, is_lazy: bool) -> None:
        """Put a queue under pressure as a memory monitor does."""
        self.queues[number].backing.memory.set_mode(is_lazy and most == 0)
        self.queues[number].backing.memory.set_target(most)
        for _ in range(turns):
            self.host.seal()
            self.host.commit()
            self.host.turn()

    @precondition(lambda self: self.host.loads)
    @rule(data=st.data())
    def load_comes_back(self, data: st.DataObject) -> None:
        self.host.loads.pop(data.draw(st.integers(0, len(self.host.loads) - 1)))()
        self.note_lost()

    @rule(number=QUEUES, data=st.data())
    def damage(self, number: int, data: st.DataObject) -> None:
        """A record of the index becomes unreadable."""
        store = self.host.stores[number]
        if store.live:
            store.damaged.add(data.draw(st.sampled_from(sorted(store.live))))

    @rule(number=QUEUES, data=st.data())
    def lose_content(self, number: int, data: st.DataObject) -> None:
        """A content becomes unreadable while its record stays."""
        store = self.host.stores[number]
        if store.live:
            store.unreadable.add(data.draw(st.sampled_from(sorted(store.live))))

    def note_lost(self) -> None:
        for store, seq in self.host.lost:
            number = self.host.stores.index(store)
            model = self.models[number]
            model.ready = [one for one in model.ready if one[0] != seq]
            model.out.pop(seq, None)
        self.host.lost = []

    @rule(number=QUEUES)
    def fetch_held(self, number: int) -> None:
        """A reader group fetches the contents of its reserved messages."""
        absent = [entry for entry in self.my_out(number) if entry.form != ALPHA]

        def arrived(lost: list[Entry]) -> None:
            self.note_lost()
            for entry in absent:
                one = self.models[number].out.get(int(entry.seq))
                if one is not None and entry in self.host.out:
                    assert entry.form == ALPHA and entry.message.body == one[1]

        if absent:
            queue = self.queues[number]
            queue.backing.loader.submit(
                EntryContents(queue.backing, absent, absent.__contains__, arrived)
            )

    @rule(is_behind=st.booleans())
    def disk(self, is_behind: bool) -> None:
        self.host.is_behind = is_behind

    @rule(ms=st.integers(1, 400))
    def wait(self, ms: int) -> None:
        self.host.now_ms += ms
        for number, queue in enumerate(self.queues):
            self.expire(number)
            if queue.backing.has_expiring:
                queue.drop_expired_head(self.host.now_ms)

    # -- what must hold ----------------------------------------------------------------------------

    @invariant()
    def same(self) -> None:
        self.note_lost()
        self.host.check()
        follow(self.mirrors, self.queues)
        for number, queue in enumerate(self.queues):
            model = self.models[number]
            assert {int(entry.seq) for entry in self.my_out(number)} == set(model.out)
            ready = queue.backing.ready
            store = self.host.stores[number]
            if ready.count < len(model.ready):
                self.expire(number)
            # A message that expired on disk is found when it is read. Where something is damaged,
            # the count of the rest is unknown.
            if ready.delta.is_uncertain:
                assert ready.count > 0 or not model.ready
            else:
                assert ready.count >= len(model.ready)
                if (
                    not any(one[2] for one in model.ready)
                    and not queue.backing.has_expiring
                    and not store.lost
                ):
                    assert ready.count == len(model.ready)
            if (
                queue.backing.memory.is_lazy
                and not queue.demand.exists()
                and not queue.backing.is_listed
                and not self.host.is_behind
            ):
                in_journal = any(
                    ready.at(index).journal_state == 1 for index in range(int(ready.entry_count))
                ) or any(entry.journal_state == 1 for entry in self.my_out(number))
                assert (
                    in_journal
                    or store.undurable
                    or queue.backing.loader.is_reading_ahead
                    or ready.entry_count == 0
                )

    def teardown(self) -> None:
        """With all messages back, each queue delivers each message once, in order and unharmed."""
        self.host.is_behind = False
        for number, queue in enumerate(self.queues):
            self.cancel(number)
            self.host.settle_down()
            # A message that expired behind unacked ones is gone, although these come back.
            self.expire(number)
            out = self.my_out(number)
            if out:
                model = self.models[number]
                for entry in out:
                    model.ready.append(model.out.pop(int(entry.seq)))
                model.ready.sort()
                self.host.requeue(*out)
                self.expire(number)
            self.host.settle_down()
            self.same()
            while (taken := self.host.take(queue, True)) is not None:
                self.on_taken(taken, True)
            self.expire(number)
            assert self.models[number].ready == []
            self.host.settle_down()
            self.same()
        assert self.host.references == {}, "contents leak"
        for store in self.host.stores:
            assert store.live == {}


TestQueueMachine = QueueMachine.TestCase
TestQueueMachine.settings = settings(
    max_examples=200, stateful_step_count=60, deadline=None, suppress_health_check=list(HealthCheck)
)
