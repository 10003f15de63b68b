"""The simulation's judgement of a flipped bit."""

from simulator.models.damage import STORE_ID, damage_of
from simulator.models.messages import body_of
from warrenmq.store.model.message import Message, Position, QueueLedger
from warrenmq.store.records.record import FILE_MAGIC, INDEX_MAGIC, RecordWriter


def test_a_header_that_was_hit_before_does_not_hide_what_a_record_says() -> None:
    for path, magic, number in (
        ("/journal/3.wal", FILE_MAGIC, 3),
        ("/queues/7/2.idx", INDEX_MAGIC, 7 << 32 | 2),
    ):
        writer = RecordWriter(STORE_ID)
        writer.start_file(magic, number)
        message = Message(b"\x01e\x01k", b"\x00\x00", body_of(5, 20), True, 1)
        writer.add_publish(message, [Position(message, QueueLedger(7), 9, 0)], 0, 1)
        data = bytearray(b"".join(writer.take()))
        data[20] ^= 1
        damage = damage_of(path, bytes(data), 60)
        assert damage.numbers == {5} and damage.positions == {(7, 9)}
