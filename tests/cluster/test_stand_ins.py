"""Stand-ins for stages of other nodes: each of their messages is taken once, whatever crashes."""

from tests.support.brokers.memory_node import MemoryDisk, MemoryNode
from warrenmq.broker.vhost.sinks.stage import Stage
from warrenmq.broker.vhost.sinks.stand_ins import StandIns
from warrenmq.queues.message_taker import MessageTaker
from warrenmq.store.model.message import Message

ORIGIN = b"0123456789abcdef"
STAGE = 7


class Receiver:
    """The stand-in of one stage, on a node that may crash."""

    def __init__(self, node: MemoryNode) -> None:
        self.node = node
        self.stand_ins = StandIns(node.vhost.staging)
        self.durable: list[str] = []

    def stage(self) -> Stage:
        return self.stand_ins.of(ORIGIN, STAGE, self.node.clock.now_ms())

    def take(self, *seqs: int, settled_below: int = 0) -> None:
        """Take messages of the stage for the queue `q`."""
        stage = self.stage()
        self.stand_ins.settle(stage, settled_below)
        queues: list[MessageTaker] = [self.node.vhost.queues[b"q"]]
        now_ms = self.node.clock.now_ms()
        for seq in seqs:
            message = Message(b"\x00\x01q", b"\x00\x00", b"m%d" % seq, True, now_ms)
            self.stand_ins.take(stage, seq, queues, message, False, now_ms)
        self.stand_ins.when_durable(stage, lambda: self.durable.append("answer"))

    def bodies(self) -> list[bytes]:
        """The bodies in the queue."""
        ready = self.node.vhost.queues[b"q"].backing.peek(0, 1000, 1 << 20)
        return [entry.message.body for entry in ready]

    def crash(self) -> "Receiver":
        return Receiver(self.node.crash())


def receiver() -> Receiver:
    node = MemoryNode(MemoryDisk())
    node.declare(b"q")
    return Receiver(node)


def test_a_message_that_comes_again_is_taken_once() -> None:
    """Before it is durable, afterwards, and after a crash; others are new."""
    one = receiver()
    one.take(1, 2)
    one.take(2, 3)
    assert one.durable == []
    one.node.commit()
    assert one.durable == ["answer", "answer"]
    one.take(1, 2, 3)
    one.node.commit()
    again = one.crash()
    again.take(1, 2, 3, 4)
    again.node.commit()
    assert again.bodies() == [b"m1", b"m2", b"m3", b"m4"]


def test_what_was_not_durable_is_taken_after_a_crash() -> None:
    """A failed batch is written again with the next one; before, no answer leaves."""
    one = receiver()
    one.take(1)
    one.node.commit(ok=False)
    assert one.durable == []
    again = one.crash()
    assert again.bodies() == []
    again.take(1)
    again.node.commit(ok=False)
    again.take(1, 2)
    again.node.commit()
    assert again.durable == ["answer", "answer"]
    assert again.crash().bodies() == [b"m1", b"m2"]


def test_nothing_of_a_finished_stage_stays() -> None:
    """The journal's files are free again, and the next start knows no stage."""
    one = receiver()
    one.take(*range(1, 10))
    one.node.commit()
    one.take(10, settled_below=9)
    one.node.commit()
    assert sorted(one.stage().moved) == [9, 10]
    one = one.crash()
    assert sorted(one.stage().moved) == list(range(1, 11))
    one.stand_ins.drop(ORIGIN, STAGE + 1, -1, one.node.clock.now_ms())
    one.node.commit()
    assert [file.pins for file in one.node.vhost.journal.files if file.pins] == []
    last = one.crash()
    assert last.node.vhost.staging.stages == {}
    assert len(last.bodies()) == 10
