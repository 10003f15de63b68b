"""The gathered output of one connection."""

import tracemalloc

from warrenmq.broker.output import Output
from warrenmq.queues.memory.transit import Transit

BURST = 200_000


def test_an_idle_connection_gives_the_room_of_its_last_burst_back() -> None:
    out = Output(Transit(1 << 27))
    tracemalloc.start()
    try:
        out.raw(bytes(BURST))
        assert sum(len(part) for part in out.take()) == BURST
        # The time of the look at a connection that has just sent something.
        out.note_progress(0)
        assert tracemalloc.get_traced_memory()[0] > BURST
        out.note_progress(500)
        assert tracemalloc.get_traced_memory()[0] < 10_000
    finally:
        tracemalloc.stop()


def test_what_was_gathered_meanwhile_stays() -> None:
    out = Output(Transit(1 << 27))
    out.raw(bytes(BURST))
    out.take()
    out.raw(b"later")
    out.note_progress(0)
    out.note_progress(500)
    out.note_progress(1000)
    assert out.take() == [b"later"]
