"""Which replicas are looked at next."""

from warrenmq.cluster.mirrors.visits import ROUND_A_TICK, URGENT_A_TURN, Visits


def test_urgent_places_are_visited_once_in_order_some_a_turn() -> None:
    visits = Visits[int](list)
    visits.hurry(range(URGENT_A_TURN + 2))
    visits.hurry([URGENT_A_TURN, 999])
    assert visits.take_urgent() == list(range(URGENT_A_TURN))
    visits.forget(URGENT_A_TURN + 1)
    assert visits.take_urgent() == [URGENT_A_TURN, 999]
    assert visits.take_urgent() == []
    assert not visits.has_urgent


def test_a_round_visits_all_places_and_begins_again() -> None:
    places = list(range(2 * ROUND_A_TICK + 1))
    visits = Visits[int](lambda: places)
    found = [visits.take_of_round() for _ in range(4)]
    assert [*found[0], *found[1], *found[2]] == places
    assert found[3] == places[:ROUND_A_TICK]
