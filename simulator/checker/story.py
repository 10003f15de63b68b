"""The story of one message: what a history says of it, of its sessions and of the faults it met."""

from __future__ import annotations

from typing import Final

from simulator.checker.events import AnyEvent
from simulator.checker.facts import Facts

# The story begins this long before the publish, with the faults that the message met.
_BEFORE_US: Final = 5_000_000


def story(events: list[AnyEvent], message: str) -> list[str]:
    """Everything that happened to one message, a line for each event, in order."""
    facts = Facts(events)
    if message not in facts.messages:
        return []
    publish = facts.messages[message].publish
    tags = {
        (delivery.event.session, delivery.event.tag)
        for session in facts.sessions.values()
        for delivery in session.deliveries
        if delivery.event.message == message
    }
    sessions = {session for session, _ in tags}
    lines = []
    for event in events:
        session = getattr(event, "session", "")
        is_about = (
            getattr(event, "message", "") == message
            or (session, getattr(event, "tag", 0)) in tags
            or (session in sessions and not hasattr(event, "tag"))
            or hasattr(event, "fault")
        )
        if is_about and event.at_us >= publish.at_us - _BEFORE_US:
            lines.append(f"{(event.at_us - facts.start_us) / 1e6:12.6f} s  {event}")
    return lines
