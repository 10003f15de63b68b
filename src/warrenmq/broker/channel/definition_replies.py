"""Answers to methods that change definitions: at once, when they are stored, or when decided.

A method that concerns only transient things is answered at once. A method that changes a durable
definition is answered when the change is on disk: until then the channel is suspended, so that its
later methods keep their place.

A new definition that cannot be stored is taken back in memory, as if it were deleted. The
connection that declared it is closed with 506, and so are connections that declared the same
meanwhile. A deletion cannot be taken back: the connection that asked for it is closed with 506, and
the broker retries the deletion until it is on disk.

A node of a cluster makes nothing itself: a new definition is proposed, and its method is handled
again when the decision has come back (`propose`).
"""

from __future__ import annotations

from collections.abc import Callable

from warrenmq.broker.channel.channel import Channel
from warrenmq.broker.channel.suspended_method import resume_method
from warrenmq.broker.definitions.metadata import Change
from warrenmq.broker.definitions.shared import SharedDefinitions
from warrenmq.broker.vhost.new_definitions import New, store_new
from warrenmq.queues.queue import Queue
from warrenmq.store.journal.change_sets import ChangeSet
from warrenmq.wire.errors import RESOURCE_ERROR, ChannelException, ConnectionException
from warrenmq.wire.method import Method


def reply_when_stored(channel: Channel, change_set: ChangeSet, reply: Method | None) -> None:
    """Suspend the channel until `change_set` is stored, then send `reply` (None: no-wait).

    If it cannot be stored, the connection is closed with 506.
    """
    channel.suspend()

    def on_stored(ok: bool, now_ms: int) -> None:
        if not channel.is_closed:
            if not ok:
                channel.connection.now_ms = now_ms
                channel.is_suspended = False
                channel.connection.fail(
                    ConnectionException(RESOURCE_ERROR, "definitions could not be written to disk")
                )
            else:
                reply_at_once(channel, reply)
        channel.resume(now_ms)
        channel.connection.touch()

    change_set.callbacks.append(on_stored)


def reply_at_once(channel: Channel, reply: Method | None) -> None:
    if reply is not None:
        channel.connection.out.method(channel.number, reply)
    channel.send_cancels()


def reply_when_made(channel: Channel, made: New, change: Change, reply: Method | None) -> None:
    """Store `change`, the definition of `made`, then send `reply`; take `made` back if it fails."""
    reply_when_stored(channel, store_new(channel.vhost, [made], [change]), reply)


def reply_when_there(channel: Channel, known: object, reply: Method | None) -> None:
    """Send `reply` when the definition of `known` is stored.

    Another client may have declared it just now, and an ok promises that it survives any crash.
    """
    change_set = channel.vhost.unstored.get(known)
    if change_set is None or reply is None:
        reply_at_once(channel, reply)
    else:
        reply_when_stored(channel, change_set, reply)


def reply_when_gone(channel: Channel, changes: list[Change], reply: Method | None) -> None:
    """Send `reply` when `changes`, which delete definitions, are stored.

    With no changes, the reply waits for deletions that others made just now and for deletions that
    are being retried: otherwise the missing thing could be back after a crash.
    """
    vhost = channel.vhost
    shared = vhost.node.shared
    if shared is not None:
        _reply_when_removed(channel, shared, changes, reply)
    elif len(changes) > 0:
        reply_when_stored(channel, vhost.store_changes(changes, True), reply)
    elif reply is not None and vhost.journal.definitions.has_kept():
        reply_when_stored(channel, vhost.store_changes([], False), reply)
    else:
        reply_at_once(channel, reply)


def _reply_when_removed(
    channel: Channel, shared: SharedDefinitions, changes: list[Change], reply: Method | None
) -> None:
    """In a cluster, send `reply` when `changes`, which delete definitions, are decided."""
    channel.suspend()

    def on_decided(failure: str, now_ms: int) -> None:
        def finish() -> None:
            if failure:
                raise _undecided(failure)
            reply_at_once(channel, reply)

        resume_method(channel, finish, now_ms)

    channel.vhost.remove_shared(shared, changes, on_decided)


def propose(
    channel: Channel,
    shared: SharedDefinitions,
    changes: list[Change],
    look_again: Callable[[], None],
) -> None:
    """Let the cluster decide `changes`, then call `look_again`, which finds what they define.

    If it finds nothing, because something else was decided first, it refuses or proposes again.
    """
    channel.suspend()
    shared.propose(changes, _when_decided(channel, look_again))


def await_deletion(channel: Channel, queue: Queue, look_again: Callable[[], None]) -> bool:
    """Whether the cluster is deciding that `queue` goes; then `look_again` is called once it has.

    For methods that count as use of the queue. If it is not decided in time, they are refused.
    """
    source = queue.confirm_source
    if source is None or not source.is_leaving:
        return False
    channel.suspend()
    source.leaving_waits.append(_when_decided(channel, look_again))
    return True


def _when_decided(channel: Channel, look_again: Callable[[], None]) -> Callable[[str, int], None]:
    def on_decided(failure: str, now_ms: int) -> None:
        def finish() -> None:
            if failure:
                raise _undecided(failure)
            look_again()

        resume_method(channel, finish, now_ms)

    return on_decided


def _undecided(failure: str) -> ChannelException:
    return ChannelException(RESOURCE_ERROR, f"the cluster has not decided in time: {failure}")
