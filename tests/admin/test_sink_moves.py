"""Moves of committed batches to their queues: they free their memory, and resume when they may."""

import gc

import pytest

from tests.admin.test_sinks import one_batch
from tests.support.brokers.staged import bodies, settle, stage, staged_message, started
from warrenmq.admin.protocol.sinks import BatchCommitted, CommitBatch
from warrenmq.broker.flow.disk_flow import STOP_BYTES, STORE_STOP_BYTES
from warrenmq.broker.vhost.sinks.stage import OUT_BYTES
from warrenmq.queues.settings import NO_LIMIT, REJECT_PUBLISH, REJECT_PUBLISH_DLX, LengthLimit


@pytest.mark.parametrize("fails", [False, True])
def test_what_was_moved_is_freed_at_once(fails: bool) -> None:
    """A finished move leaves no reference cycle.

    The cycle collector does not count messages: a cycle around a few thousand of them looks small
    and stays for hours.
    """
    node, client = started()
    node.vhost.staging.mover.slice_messages = 2
    gc.collect()
    gc.disable()
    try:
        for batch in range(3):
            log = stage(client, "s", batch, [staged_message(b"%d" % number) for number in range(5)])
            client.send(CommitBatch("s", batch, [log]))
            if fails:
                one_batch(node, False)
                node.vhost.advance(node.clock.now_ms())
                one_batch(node, True)
                node.vhost.advance(node.clock.now_ms())
                one_batch(node, False)
            settle(node)
            assert [type(reply) for reply in client.replies()] == [BatchCommitted]
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        left = {type(thing).__name__ for thing in gc.garbage}
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
    assert len(bodies(node)) == 15
    assert not left & {
        "MoveSlice",
        "Stage",
        "Sink",
        "Queue",
        "SinkCalls",
        "Staging",
        "MovedMessage",
        "Entry",
    }


def test_a_sink_that_waited_for_the_disk_goes_on_in_the_next_turn() -> None:
    node, client = started()
    flow = node.broker.disk_flow
    log = stage(client, "s", 0, [staged_message(b"a")])
    flow.stop_bytes = -1
    client.must(CommitBatch("s", 0, [log]))
    settle(node)
    assert bodies(node) == []
    flow.stop_bytes = STOP_BYTES
    # Flow control is on at the start of the turn; the turn finds the store idle and switches it
    # off.
    flow.store_waits(node.vhost.journal, 2 * STORE_STOP_BYTES, 0, False)
    assert node.vhost.advance(node.clock.now_ms()), "another turn is wanted"
    settle(node)
    assert bodies(node) == [b"a"]


def test_a_batch_of_the_journal_has_at_most_half_of_what_may_be_on_its_way() -> None:
    """The other half can be moved while the disk writes it, so that both have work."""
    node, client = started()
    mover = node.vhost.staging.mover
    mover.slice_messages = 1
    staged = [staged_message(bytes([number]) * (OUT_BYTES // 8)) for number in range(12)]
    log = stage(client, "s", 0, staged)
    client.send(CommitBatch("s", 0, [log]))
    gathered: list[int] = []
    for _ in range(100):
        while node.vhost.advance(node.clock.now_ms()):
            pass
        gathered.append(node.vhost.journal.pending_bytes)
        one_batch(node, True)
    assert len(bodies(node)) == 12
    assert OUT_BYTES // 2 <= max(gathered) < OUT_BYTES // 2 + 2 * OUT_BYTES // 8


@pytest.mark.parametrize("overflow", [REJECT_PUBLISH, REJECT_PUBLISH_DLX])
def test_a_committed_batch_enters_a_queue_that_refuses_publishes(overflow: int) -> None:
    """A refused message would be lost, as the batch is committed and its stage is deleted."""
    node, client = started()
    node.vhost.queues[b"q"].limit = LengthLimit(1, NO_LIMIT, overflow)
    staged = [staged_message(b"%d" % number) for number in range(3)]
    client.must(CommitBatch("s", 0, [stage(client, "s", 0, staged)], wait_ms=1000))
    assert bodies(node) == [b"0", b"1", b"2"]
