"""Rules 1, 2, 3 and 7: which messages must appear, which must not, and who may settle them.

A confirmed message must be delivered by each of its queues, now or at the final drain (rule 1). Its
last consumer must have acked it: a message that was delivered, never acked, and is gone when the
queue is drained, was settled by the ack of another message (rule 7). What a purge or a deletion may
have removed is gone rightly. A rejected message must arrive in the queue of its dead letters.
"""

from __future__ import annotations

from simulator.checker.facts import NEVER, DeliveryFacts, Facts, MessageFacts
from simulator.checker.violation import Rule, Violation


def judge_losses(facts: Facts) -> list[Violation]:
    """Confirmed messages that are gone, by rule 1 or 7; only queues that were drained."""
    found = []
    for message in facts.messages.values():
        if message.is_promised:
            for queue in message.publish.queues:
                if queue in facts.drained and not facts.removes(message, queue):
                    found += _judge_copy(message, queue)
        for rejected in message.rejected:
            # A master that dies may take along what it has not confirmed, delivered or not.
            is_kept = message.is_promised and rejected.settled_us != NEVER
            if is_kept and rejected.letters in facts.drained:
                found += _judge_letter(message, rejected)
    return found


def _judge_letter(message: MessageFacts, rejected: DeliveryFacts) -> list[Violation]:
    # A takeover may undo the reject: then a later consumer decides.
    last = message.deliveries[rejected.session.start.queue][-1]
    if rejected.letters in message.deliveries or last is not rejected:
        return []
    names, moments = (message.publish.message,), (rejected.acked_us, rejected.settled_us)
    text = f"rejected by {rejected.event.session}, and never delivered as a dead letter"
    return [Violation(Rule.LOST, rejected.letters, text, names, moments)]


def _judge_copy(message: MessageFacts, queue: str) -> list[Violation]:
    publish, confirm = message.publish, message.confirms[0]
    deliveries = message.deliveries.get(queue, [])
    if not deliveries:
        text = "confirmed and never delivered"
        return [
            Violation(Rule.LOST, queue, text, (publish.message,), (publish.at_us, confirm.at_us))
        ]
    if not any(delivery.is_acked for delivery in deliveries):
        text = "delivered, never acked, and gone"
        moments = tuple(delivery.at_us for delivery in deliveries)
        return [Violation(Rule.SETTLED, queue, text, (publish.message,), moments)]
    return []


def judge_ghosts(facts: Facts) -> list[Violation]:
    """Deliveries of messages that nobody sent to the queue, or not with this body (rule 2)."""
    found = [
        Violation(
            Rule.GHOST,
            delivery.session.start.queue,
            f"delivered to {delivery.event.session}, never published",
            (delivery.event.message,),
            (delivery.at_us,),
        )
        for delivery in facts.ghosts
    ]
    for message in facts.messages.values():
        publish = message.publish
        for queue, deliveries in message.deliveries.items():
            moments = (publish.at_us, deliveries[0].at_us)
            if queue not in {*publish.queues, *(each.letters for each in message.rejected)}:
                text = f"delivered, but published to {', '.join(publish.queues)}"
                found.append(Violation(Rule.GHOST, queue, text, (publish.message,), moments))
            elif any(delivery.event.crc != publish.crc for delivery in deliveries):
                text = "delivered with another body than published"
                found.append(Violation(Rule.GHOST, queue, text, (publish.message,), moments))
    return found


def judge_answers(facts: Facts) -> list[Violation]:
    """Publishes with more than one answer, answers to none, deliveries after a return (rule 3)."""
    found = [
        Violation(Rule.ANSWER, "", "answered, never published", (event.message,), (event.at_us,))
        for event in facts.ghost_answers
    ]
    for message in facts.messages.values():
        answers = [*message.confirms, *message.nacks]
        names = (message.publish.message,)
        if len(answers) > 1:
            text = f"{len(message.confirms)} confirms and {len(message.nacks)} nacks"
            moments = tuple(sorted(event.at_us for event in answers))
            found.append(Violation(Rule.ANSWER, "", text, names, moments))
        for queue, deliveries in message.deliveries.items():
            if message.returns:
                text = "returned as unroutable and delivered"
                moments = (message.returns[0].at_us, deliveries[0].at_us)
                found.append(Violation(Rule.ANSWER, queue, text, names, moments))
    return found
