"""A mirror that is synchronised equals its master, however much it had before."""

import re
from collections import deque

import pytest
from librt.strings import BytesWriter

from tests.cluster.mirrors.sync.synced_pair import Pair
from warrenmq.cluster.mirrors.sync import source as sync_source
from warrenmq.cluster.mirrors.sync import target as sync_target
from warrenmq.cluster.mirrors.sync.records import CANCEL, CHUNK, DEPOSED, OFFER, Note, decode
from warrenmq.cluster.mirrors.sync.source import SCANNING
from warrenmq.queues.mirror.backing import HELD_BYTES
from warrenmq.queues.mirror.records import write_publish, write_published
from warrenmq.queues.settings import QueueSettings, QueueTraits
from warrenmq.store.model.message import Message

CHUNK_BYTES = 1000


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make chunks so small that a few messages fill them."""
    monkeypatch.setattr(sync_source, "CHUNK_BYTES", CHUNK_BYTES)
    monkeypatch.setattr(sync_source, "READ_BYTES", 2 * CHUNK_BYTES)


LAZY = QueueSettings(is_lazy=True)
LEVELS = QueueSettings(traits=QueueTraits(max_priority=5))


def filled(
    settings: QueueSettings | None = None, durable: bool = True, held_bytes: int = HELD_BYTES
) -> Pair:
    """A pair whose master has ready, unacked and returned messages, some of which expire."""
    pair = Pair(settings, durable, held_bytes)
    for number in range(200):
        pair.publish(
            persistent=number % 7 != 0,
            size=20 if number % 50 else 5000,
            expiration_ms=1_000_000 if number % 5 == 0 else -1,
            priority=number % 4 if pair.queue.levels is not None else 0,
        )
        if number % 40 == 0:
            pair.end_turn()
            pair.master.commit()
    taken = pair.take(40)
    pair.ack(taken[:10])
    pair.requeue(taken[10:20])
    pair.requeue(taken[20:25], is_unseen=True)
    return pair


@pytest.mark.parametrize("durable", [True, False])
@pytest.mark.parametrize("settings", [QueueSettings(), LAZY, LEVELS])
def test_an_empty_mirror_gets_everything(settings: QueueSettings, durable: bool) -> None:
    pair = filled(settings, durable)
    pair.join()
    pair.synchronise()
    assert pair.synced_count == 1
    assert len(pair.assert_equal()) == 190


def test_pages_that_were_dropped_from_memory_are_read_from_disk() -> None:
    pair = filled()
    pair.page_out()
    assert pair.queue.backing.ready.ram_count < 50
    pair.join()
    pair.synchronise()
    assert len(pair.assert_equal()) == 190


def test_a_queue_under_load_is_synchronised_and_never_waits() -> None:
    pair = filled()
    pair.join()
    for _ in range(30):
        pair.publish(3)
        pair.ack(pair.take(2))
        pair.end_turn()
        pair.deliver_ring()
        pair.deliver_to_mirror()
        pair.deliver_to_master()
        pair.mirror.commit()
        pair.clock.advance(1)
    pair.synchronise()
    pair.assert_equal()


def test_a_purge_meanwhile_leaves_nothing_behind() -> None:
    pair = filled()
    pair.join()
    pair.receive_chunks(3)
    pair.queue.purge(pair.now_ms)
    pair.publish(5)
    pair.synchronise()
    assert len(pair.assert_equal()) == 15 + 5


def test_messages_that_expire_meanwhile_are_gone_at_the_mirror() -> None:
    pair = Pair()
    pair.publish(50, expiration_ms=100)
    pair.publish(50)
    pair.join()
    pair.receive_chunks(1)
    pair.clock.advance(200)
    while pair.queue.ready_count > 50:
        pair.queue.drop_expired_head(pair.now_ms)
        pair.turn()
    pair.synchronise()
    assert len(pair.assert_equal()) == 50


@pytest.mark.parametrize("settings", [QueueSettings(), LAZY])
@pytest.mark.parametrize("is_crash", [True, False])
def test_a_mirror_that_returns_gets_the_difference_only(
    settings: QueueSettings, is_crash: bool
) -> None:
    pair = Pair(settings)
    pair.publish(200, size=100)
    pair.join()
    pair.synchronise()
    before = pair.source.sent_bytes
    if is_crash:
        pair.restart_mirror()
    else:
        pair.reopen_copy()
    pair.publish(40, size=100)
    taken = pair.take(50)
    pair.ack(taken[:25])
    pair.requeue(taken[25:])
    pair.join()
    pair.synchronise()
    sent = pair.source.sent_bytes - before
    assert sent * 200 <= before * 40 * 1.1
    assert len(pair.assert_equal()) == 215


def test_a_copy_with_very_many_gaps_is_compared_and_mended_in_slices() -> None:
    pair = Pair()
    pair.publish(2000)
    pair.join()
    pair.synchronise()
    taken = pair.take(2000)
    pair.ack(taken[::2])
    pair.turn()
    pair.turn()
    pair.leave()
    pair.ack(taken[1:1600:4])
    pair.publish(50)
    pair.join()
    # The mirror looks through its copy, then the master through its queue, the mirror drops.
    assert pair.to_master == deque()
    while not pair.to_master:
        pair.end_turn()
    pair.deliver_to_master()
    assert pair.source.state == SCANNING
    while pair.source.state == SCANNING:
        pair.end_turn()
    pair.end_turn()
    before = pair.copy.ready_count
    while pair.deliver_to_mirror() is not None:
        pass
    assert before > pair.copy.ready_count > 600
    pair.ack(taken[3::8])
    pair.synchronise()
    pair.requeue(pair.out[:])
    assert pair.source.sent_count == 50
    assert len(pair.assert_equal()) == 400


def test_messages_that_only_a_deposed_master_has_are_dropped() -> None:
    pair = Pair()
    pair.publish(20)
    pair.join()
    pair.synchronise()
    pair.leave()
    # As a master of epoch 1, the mirror publishes what nobody else gets.
    out = BytesWriter()
    out.write((1).to_bytes(8, "big"))
    write_publish(out, 0, pair.copy.next_seq, 10)
    for number in range(10):
        message = Message(b"\x00\x01q", b"\x00\x00", b"divergent %d" % number, True, 0)
        write_published(out, message, True, False, 0)
    pair.applier.apply(out.getvalue(), pair.now_ms)
    pair.mirror.commit()
    assert pair.copy.ready_count == 30
    pair.open_copy()
    pair.begin_epoch()
    pair.publish(5)
    before = pair.source.sent_count
    pair.join()
    pair.synchronise()
    assert pair.source.sent_count - before <= 5
    assert len(pair.assert_equal()) == 25


def test_a_mirror_that_lacks_messages_in_the_middle_begins_anew() -> None:
    pair = Pair()
    pair.publish(20)
    pair.join()
    pair.synchronise()
    pair.leave()
    pair.applier.levels()[0].settle([(pair.copy.next_seq - 5, pair.copy.next_seq - 5)], 0)
    pair.open_copy()
    pair.join()
    pair.synchronise()
    assert pair.source.sent_count == 20
    pair.assert_equal()


def test_an_interrupted_synchronisation_keeps_what_arrived() -> None:
    pair = Pair()
    pair.publish(400, size=100)
    pair.join()
    whole = Pair()
    whole.publish(400, size=100)
    whole.join()
    whole.synchronise()
    pair.receive_chunks(20)
    sent = pair.source.sent_bytes
    arrived = pair.copy.ready_count
    assert 100 < arrived < 200
    pair.mirror.commit()
    pair.restart_mirror()
    assert pair.copy.ready_count == arrived
    pair.join()
    pair.synchronise()
    rest = pair.source.sent_bytes - sent
    assert rest <= whole.source.sent_bytes * (400 - arrived) / 400 * 1.1
    pair.assert_equal()


def test_a_cut_link_costs_no_more_than_what_was_on_its_way() -> None:
    pair = Pair()
    pair.publish(400, size=100)
    pair.join()
    pair.receive_chunks(20)
    pair.cut_link()
    pair.publish(5)
    pair.end_turn()
    pair.target.begin(pair.epoch, pair.now_ms)
    pair.synchronise()
    # 20 chunks were taken; two may have been on their way.
    assert pair.source.sent_bytes <= 410 * 150 + 3 * CHUNK_BYTES
    pair.assert_equal()


def test_a_manual_synchronisation_waits_until_it_is_wanted() -> None:
    pair = Pair(is_automatic=False)
    pair.publish(100)
    pair.join()
    for _ in range(20):
        pair.turn()
    assert pair.source.state == sync_source.WAITING and pair.source.progress() == (100, 0)
    pair.source.start()
    pair.turn()
    pair.receive_chunks(2)
    pair.source.cancel()
    left, sent = pair.source.progress()
    assert sent > 0 and left + sent == 100
    for _ in range(10):
        pair.turn(ms=500)
    assert pair.source.progress() == (left, sent) and pair.copy.ready_count == sent
    assert pair.target.left_count == left
    pair.source.start()
    pair.synchronise()
    pair.assert_equal()


def test_a_mirror_is_in_sync_when_consumers_have_taken_all_that_it_missed() -> None:
    pair = Pair(is_automatic=False)
    pair.publish(20)
    pair.join()
    pair.turn()
    pair.publish(10)
    pair.ack(pair.take(20))
    for _ in range(10):
        pair.turn(ms=500)
    assert pair.is_in_sync and pair.source.sent_count == 0
    assert len(pair.assert_equal()) == 10


def test_what_the_mirror_cannot_keep_beside_is_sent_in_another_pass() -> None:
    pair = filled(held_bytes=1500)
    pair.join()
    passes = set()
    for _ in range(60):
        pair.publish(2)
        pair.end_turn()
        for record in pair.to_master:
            if record.kind == OFFER:
                passes.add(decode(record).attempt)
        pair.deliver_ring()
        pair.deliver_to_mirror()
        pair.deliver_to_master()
        pair.mirror.commit()
        pair.clock.advance(1)
    pair.synchronise()
    assert len(passes) >= 1
    pair.assert_equal()


def test_a_lost_offer_is_made_again() -> None:
    pair = filled()
    pair.join()
    pair.to_master.clear()
    pair.turn(ms=sync_target.SILENT_MS)
    pair.turn()
    pair.synchronise()
    pair.assert_equal()


def test_a_mirror_that_takes_no_chunk_is_told_and_offers_anew() -> None:
    pair = filled()
    pair.join()
    while not any(record.kind == CHUNK for record in pair.to_mirror):
        pair.deliver_to_master()
        pair.end_turn()
        pair.master.commit()
    pair.to_mirror.clear()
    pair.clock.advance(sync_source.ANSWER_MS)
    pair.end_turn()
    assert pair.to_mirror[-1].kind == CANCEL
    pair.turn()
    pair.turn(ms=sync_target.RETRY_MS)
    pair.synchronise()
    pair.assert_equal()


def test_a_source_that_forgot_the_attempt_asks_for_another() -> None:
    pair = filled()
    pair.join()
    pair.receive_chunks(2)
    pair.source.stop()
    pair.turn()
    pair.turn(ms=sync_target.RETRY_MS)
    pair.synchronise()
    pair.assert_equal()


def test_a_deposed_master_sends_nothing() -> None:
    pair = filled()
    pair.join()
    pair.to_master.clear()
    pair.target.begin(9, pair.now_ms + 1)
    pair.deliver_to_master()
    (record,) = pair.to_mirror
    assert decode(record) == Note(CANCEL, pair.target.attempt, DEPOSED)


def test_the_rate_is_bounded_and_leaves_room_for_publishing() -> None:
    pair = Pair(rate_bytes=100_000)
    pair.publish(3000, size=100)
    pair.join()
    for _ in range(100):
        pair.turn(ms=10)
    # The burst, one second, and a chunk that overdraws.
    assert pair.source.sent_bytes <= 262_144 + 100_000 + CHUNK_BYTES
    pair.source.set_rate(0)
    pair.synchronise()
    pair.assert_equal()


@pytest.mark.parametrize("is_lazy", [True, False])
def test_a_damaged_message_is_skipped(is_lazy: bool) -> None:
    pair = Pair(LAZY if is_lazy else QueueSettings())
    pair.publish(100, size=50)
    pair.page_out()
    delta = pair.queue.backing.ready.delta
    assert delta.count > 50
    (damaged,) = [
        file
        for name, file in pair.master.disk.files.files()
        if name.endswith(".idx") and b"%050d" % 60 in file.data
    ]
    damaged.data[damaged.data.index(b"%050d" % 60)] ^= 1
    pair.join()
    pair.synchronise()
    ours, theirs = pair.drain_both()
    assert ours == theirs and len(ours) == 99


def test_the_log_follows_a_synchronisation_from_its_start_to_its_end() -> None:
    pair = Pair(rate_bytes=20_000)
    pair.publish(40, size=20_000)
    pair.join()
    for _ in range(350):
        pair.turn(100)
    assert pair.is_in_sync
    start, *progress, end = pair.lines
    assert start == "Synchronising the mirror on node 'n2', messages to send: 40"
    assert 1 <= len(progress) <= 2, "ten seconds lie between two lines"
    for line in progress:
        found = re.fullmatch(
            r"Synchronising the mirror on node 'n2', (\d+) %; messages sent: (\d+)", line
        )
        assert found is not None and int(found[1]) == int(found[2]) * 100 // 40, line
    assert re.fullmatch(
        r"The mirror on node 'n2' is synchronised, in \d\d\.\d s; messages: 40, bytes: 80\d{4}", end
    )


def test_the_log_says_that_a_synchronisation_was_given_up() -> None:
    pair = Pair(rate_bytes=2000)
    pair.publish(40, size=1000)
    pair.join()
    for _ in range(30):
        pair.turn(100)
    pair.source.cancel()
    pair.source.start()
    pair.leave()
    start, cancelled, again, lost = pair.lines
    sent = 40 - int(again.rpartition(" ")[2])
    assert start.endswith("messages to send: 40") and sent > 0
    stopped = "Synchronising the mirror on node 'n2' has stopped: "
    assert cancelled == f"{stopped}it was cancelled; messages sent: {sent}"
    assert lost == f"{stopped}the mirror, its link or the leader is lost; messages sent: {sent}"


def test_the_log_has_nothing_of_a_queue_without_messages() -> None:
    pair = Pair()
    pair.join()
    pair.synchronise()
    assert pair.lines == []
