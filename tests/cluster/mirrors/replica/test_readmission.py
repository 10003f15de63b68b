"""The pauses of a node that is given up over and over."""

from warrenmq.cluster.mirrors.replica.readmission import (
    PAUSE_MAX_MS,
    PAUSE_MIN_MS,
    STABLE_MS,
    Readmission,
)


def pause_ms(readmission: Readmission, now_ms: int) -> int:
    """Bury a member at `now_ms`; how long the node has to wait."""
    readmission.buried(now_ms)
    return next(
        pause_ms
        for pause_ms in range(0, PAUSE_MAX_MS + PAUSE_MIN_MS, PAUSE_MIN_MS)
        if readmission.may_ask(now_ms + pause_ms)
    )


def test_a_member_that_has_lived_for_long_is_taken_in_at_once() -> None:
    readmission = Readmission()
    assert readmission.may_ask(0)
    readmission.joined(0)
    assert pause_ms(readmission, STABLE_MS) == 0


def test_pauses_grow_while_a_member_is_given_up_soon() -> None:
    readmission = Readmission()
    now_ms = 0
    pauses = []
    for _ in range(7):
        readmission.joined(now_ms)
        now_ms += 10
        pauses.append(pause_ms(readmission, now_ms) // PAUSE_MIN_MS)
        now_ms += pauses[-1] * PAUSE_MIN_MS
    assert pauses == [1, 2, 4, 8, 16, 16, 16] and PAUSE_MAX_MS == 16 * PAUSE_MIN_MS
    readmission.joined(now_ms)
    assert pause_ms(readmission, now_ms + STABLE_MS) == 0


def test_a_new_link_ends_a_pause() -> None:
    readmission = Readmission()
    readmission.joined(0)
    readmission.buried(1)
    assert not readmission.may_ask(1)
    readmission.link_is_new()
    assert readmission.may_ask(1)
    readmission.joined(2)
    assert pause_ms(readmission, 3) == PAUSE_MIN_MS
