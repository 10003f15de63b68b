"""In which order proposals become due: by rank, one of each queue at a time."""

from warrenmq.cluster.groups.proposal_queue import LATER, URGENT, USUAL, Proposal, ProposalQueue


def proposal(name: bytes, rank: int = USUAL) -> Proposal:
    return Proposal((b"/", name, 1), lambda put: None, lambda outcome: None, 10, None, rank)


def due(queue: ProposalQueue, rank: int) -> list[bytes]:
    """Begin attempts at all proposals that are due in a rank; the names of their queues."""
    names = []
    while (first := queue.first(rank)) is not None:
        queue.take(first)
        names.append(first.key[1])
    return names


def test_proposals_are_due_by_rank_oldest_first() -> None:
    queue = ProposalQueue()
    assert all([queue.add(proposal(name, rank)) for name, rank in
                ((b"a", LATER), (b"b", USUAL), (b"c", URGENT), (b"d", USUAL))])  # fmt: skip
    assert [queue.count(rank) for rank in (URGENT, USUAL, LATER)] == [1, 2, 1]
    assert due(queue, URGENT) == [b"c"] and due(queue, USUAL) == [b"b", b"d"]
    assert due(queue, LATER) == [b"a"] and queue.first(LATER) is None


def test_a_queue_has_one_proposal_due_at_a_time() -> None:
    queue = ProposalQueue()
    first, second = proposal(b"q"), proposal(b"q")
    assert queue.add(first) and not queue.add(second)
    queue.take(first)
    assert queue.first(USUAL) is None and queue.is_busy(first.key)
    queue.again(first)
    assert queue.first(USUAL) is first
    queue.take(first)
    assert queue.end(first) and queue.first(USUAL) is second
    queue.take(second)
    assert not queue.end(second) and not queue.is_busy(first.key)


def test_a_proposal_is_not_kept_waiting_by_one_of_a_lower_rank() -> None:
    queue = ProposalQueue()
    first = proposal(b"q", LATER)
    queue.add(first)
    assert queue.add(proposal(b"q", USUAL)), "the first one is due earlier now"
    assert queue.first(USUAL) is first and queue.count(LATER) == 0
    queue.take(first)
    assert not queue.add(proposal(b"q", URGENT)), "an attempt is under way"
    queue.again(first)
    assert queue.first(URGENT) is first
    queue.take(first)
    queue.end(first)
    second = queue.first(URGENT)
    assert second is not None and second.rank == USUAL, "an urgent one is behind it"


def test_hurried_proposals_are_urgent() -> None:
    queue = ProposalQueue()
    waiting, trying = proposal(b"waiting", LATER), proposal(b"trying", LATER)
    queue.add(waiting)
    queue.add(trying)
    queue.take(trying)
    assert queue.hurry(waiting.key) and not queue.hurry(waiting.key)
    assert not queue.hurry(trying.key) and not queue.hurry((b"/", b"other", 1))
    queue.again(trying)
    assert due(queue, URGENT) == [b"waiting", b"trying"]
