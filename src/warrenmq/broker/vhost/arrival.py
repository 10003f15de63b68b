"""The only way of a routed message into its queues: published, committed, staged or dead.

What has to be done before it may be confirmed is known afterwards (`confirm_parties`).
"""

from __future__ import annotations

from mypy_extensions import i64

from warrenmq.queues.message_taker import MessageTaker
from warrenmq.store.journal.confirm_run import ConfirmParty
from warrenmq.store.model.message import Message


def arrive(
    queues: list[MessageTaker],
    message: Message,
    expiration_ms: i64,
    priority: i64,
    now_ms: i64,
    is_known: bool,
    may_refuse: bool = True,
) -> bool:
    """Publish `message` to each of `queues`; False when one of them has refused it.

    `expiration_ms` is the message's own time to live (NO_LIMIT: none). `is_known`: a consumer may
    have received the message before a crash. `may_refuse`: see `MessageTaker.publish`.
    """
    is_taken = True
    for queue in queues:
        if not queue.publish(message, expiration_ms, now_ms, is_known, priority, may_refuse):
            is_taken = False
    return is_taken


def confirm_parties(
    queues: list[MessageTaker], batch: ConfirmParty, is_for_disk: bool
) -> list[ConfirmParty]:
    """The parties that must finish before a message that just arrived at `queues` is confirmed.

    `batch` is the gathering batch of the vhost's journal. `is_for_disk`: the message is persistent.
    """
    parties: list[ConfirmParty] = []
    needs_batch = False
    for queue in queues:
        party = queue.confirm_party(True)
        if party is not None:
            parties.append(party)
        elif is_for_disk and queue.durable:
            needs_batch = True
    if needs_batch:
        parties.append(batch)
    return parties
