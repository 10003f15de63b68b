"""Rule 4: the first deliveries of a queue have one order, for all publishers and all consumers.

Each session of a publisher and each session of a consumer is a chain of messages. The chains of one
queue agree if together they form no circle: then there is an order of which every chain is a part.
Only messages that were not redelivered at their first arrival count, because a requeued message
may return to a place that its consumer has passed. Each level of a priority queue has an order of
its own.
"""

from __future__ import annotations

from collections.abc import Iterable

from simulator.checker.facts import DeliveryFacts, Facts
from simulator.checker.violation import Rule, Violation


def judge_order(facts: Facts) -> list[Violation]:
    """The circles among first deliveries: one for each queue at most, the shortest found."""
    found = []
    for queue in facts.queues:
        first = _first_deliveries(facts, queue)
        successors = _chains(facts, queue, first)
        circle = _circle(successors)
        if circle:
            text = "messages overtook each other"
            moments = tuple(first[message].at_us for message in circle)
            found.append(Violation(Rule.ORDER, queue, text, tuple(circle), moments))
    return found


def _first_deliveries(facts: Facts, queue: str) -> dict[str, DeliveryFacts]:
    """First deliveries that are not redelivered, by message."""
    return {
        name: message.deliveries[queue][0]
        for name, message in facts.messages.items()
        if queue in message.deliveries
        and queue in message.publish.queues
        and not message.deliveries[queue][0].event.redelivered
    }


def _chains(facts: Facts, queue: str, first: dict[str, DeliveryFacts]) -> dict[str, list[str]]:
    """The next messages of each message, in the chains of its publisher and its consumer."""
    successors: dict[str, list[str]] = {message: [] for message in first}
    publishers: dict[tuple[str, int], list[tuple[int, str]]] = {}
    levels = {message: facts.messages[message].publish.level_in(queue) for message in first}
    for message in first:
        publish = facts.messages[message].publish
        chain_of = publishers.setdefault((publish.session, levels[message]), [])
        chain_of.append((publish.sequence, message))
    for chain in publishers.values():
        _link((message for _, message in sorted(chain)), successors)
    for session in facts.sessions_of.get(queue, []):
        arrived: dict[int, list[str]] = {}
        for delivery in session.deliveries:
            message = delivery.event.message
            if first.get(message) is delivery:
                arrived.setdefault(levels[message], []).append(message)
        for messages in arrived.values():
            _link(messages, successors)
    return successors


def _link(chain: Iterable[str], successors: dict[str, list[str]]) -> None:
    before = ""
    for message in chain:
        if before:
            successors[before].append(message)
        before = message


def _circle(successors: dict[str, list[str]]) -> list[str]:
    """The messages of a short circle; empty if there is none."""
    predecessor_counts = dict.fromkeys(successors, 0)
    for following in successors.values():
        for message in following:
            predecessor_counts[message] += 1
    free = [message for message, count in predecessor_counts.items() if count == 0]
    while free:
        message = free.pop()
        del predecessor_counts[message]
        for following_message in successors[message]:
            predecessor_counts[following_message] -= 1
            if predecessor_counts[following_message] == 0:
                free.append(following_message)
    # Every message that is left lies on a circle or behind one. A walk backwards would stay on
    # circles; a search from the first few messages finds a short one.
    left = {
        message: [following for following in successors[message] if following in predecessor_counts]
        for message in predecessor_counts
    }
    circles = [circle for start in list(left)[:_STARTS] if (circle := _shortest(left, start))]
    return min(circles, key=len, default=[]) or _any_circle(left)


# Messages from which a shortest circle is searched.
_STARTS = 100


def _shortest(successors: dict[str, list[str]], start: str) -> list[str]:
    """The shortest circle through `start`; empty if there is none."""
    came_from: dict[str, str] = {}
    border = [start]
    while border:
        further = []
        for message in border:
            for following in successors[message]:
                if following == start:
                    circle = [message]
                    while circle[-1] != start:
                        circle.append(came_from[circle[-1]])
                    return circle[::-1]
                if following not in came_from:
                    came_from[following] = message
                    further.append(following)
        border = further
    return []


def _any_circle(successors: dict[str, list[str]]) -> list[str]:
    """A circle, found by a walk against the chains; empty without messages."""
    predecessors = {
        following: message for message in successors for following in successors[message]
    }
    if not predecessors:
        return []
    walk = [next(iter(predecessors))]
    places = {walk[0]: 0}
    while (before := predecessors[walk[-1]]) not in places:
        places[before] = len(walk)
        walk.append(before)
    return walk[places[before] :][::-1]
