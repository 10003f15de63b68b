"""Changes of vhosts, users, permissions and parameters: planned, stored, then put in force.

Operations are carried out one after another. An operation plans its changes when its turn comes, so
that it sees what the one before it did; a plan that refuses changes nothing. The changes are stored
all or none, and put in force when they are on disk: what a reply reports survives any crash.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Protocol

from warrenmq.admin.definition_events import announce_change
from warrenmq.broker.broker import Broker
from warrenmq.broker.definitions.metadata import (
    Change,
    DeleteParameter,
    DeleteUser,
    DeleteVhost,
    PutParameter,
    PutVhost,
)
from warrenmq.broker.event_listener import INTERNAL_USER
from warrenmq.broker.vhost.vhost import Vhost
from warrenmq.vocabulary.error_codes import STORAGE_FAILED
from warrenmq.vocabulary.names import name_text
from warrenmq.wire.errors import CONNECTION_FORCED, ConnectionException


class Refusal(Exception):
    """An operation is refused: `code` is one of the protocol's codes, `text` is for people."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text


# Plans an operation: returns its changes, or raises Refusal.
Plan = Callable[[], list[Change]]
# Called when an operation is over: None, or why it was refused.
OnDone = Callable[[Refusal | None], None]


class AdministrationShell(Protocol):
    """The disk of a node, as an administration needs it. All callbacks come on the loop."""

    def store(self, changes: list[Change], done: Callable[[str], None]) -> None:
        """Store `changes`, all or none; then call `done` with "" or with what failed."""

    def open_vhost(self, definition: PutVhost, done: Callable[[str], None]) -> None:
        """Make the vhost usable for clients; then call `done` with "" or with what failed."""

    def close_vhost(self, vhost: Vhost, done: Callable[[], None]) -> None:
        """Delete the vhost's queues and its directory; then call `done`."""


class Administration:
    """The administration of `broker`; `shell` stores what it changes."""

    def __init__(self, broker: Broker, shell: AdministrationShell) -> None:
        self._broker = broker
        self._shell = shell
        self._waiting: deque[tuple[Plan, OnDone, bytes]] = deque()
        self._is_busy = False
        # The user who asks for the operation that is under way.
        self._user = INTERNAL_USER

    def run(self, plan: Plan, done: OnDone, user: bytes = INTERNAL_USER) -> None:
        """Carry out the operation that `plan` describes; `done` is called once.

        `user` asks for it.
        """
        self._waiting.append((plan, done, user))
        self._work()

    def _work(self) -> None:
        while self._waiting and not self._is_busy:
            plan, done, self._user = self._waiting.popleft()
            try:
                changes = plan()
            except Refusal as refusal:
                done(refusal)
                continue
            if not changes:
                done(None)
                continue
            self._is_busy = True
            self._store(changes, done)

    def _store(self, changes: list[Change], done: OnDone) -> None:
        def on_stored(failure: str) -> None:
            if failure:
                text = f"the broker could not store the change; nothing is changed: {failure}"
                self._end(done, Refusal(STORAGE_FAILED, text))
            else:
                self._apply(deque(changes), done)

        self._shell.store(changes, on_stored)

    def _apply(self, changes: deque[Change], done: OnDone) -> None:
        """Put stored changes in force, in order; opening and closing a vhost takes some turns."""
        while changes:
            change = changes.popleft()
            if isinstance(change, PutVhost):
                vhost = self._broker.vhosts.get(change.name)
                if vhost is None:
                    self._open(change, changes, done)
                    return
                announce_change(self._broker, change, self._user)
                vhost.define(change)
            elif isinstance(change, DeleteVhost):
                vhost = self._broker.vhosts.get(change.name)
                if vhost is not None:
                    self._close(vhost, change, changes, done)
                    return
            else:
                announce_change(self._broker, change, self._user)
                self._apply_one(change)
        self._end(done, None)

    def _open(self, definition: PutVhost, rest: deque[Change], done: OnDone) -> None:
        def on_open(failure: str) -> None:
            if failure:
                name = name_text(definition.name)
                text = f"vhost '{name}' is stored, but its directory is not usable: {failure}"
                self._end(done, Refusal(STORAGE_FAILED, text))
            else:
                self._announce("vhost.created", definition)
                self._apply(rest, done)

        self._shell.open_vhost(definition, on_open)

    def _close(self, vhost: Vhost, change: DeleteVhost, rest: deque[Change], done: OnDone) -> None:
        broker = self._broker
        del broker.vhosts[vhost.name]
        broker.access.apply(change)
        for key in [key for key in broker.parameters if key[0] == vhost.name]:
            del broker.parameters[key]
        text = f"vhost '{name_text(vhost.name)}' is deleted"
        for connection in list(broker.connections):
            if connection.vhost is vhost:
                connection.fail(ConnectionException(CONNECTION_FORCED, text))
                connection.touch()

        def on_closed() -> None:
            self._announce("vhost.deleted", change)
            self._apply(rest, done)

        self._shell.close_vhost(vhost, on_closed)

    def _announce(self, event: str, change: Change) -> None:
        """Tell the listener, if there is one, of a vhost that was opened or closed."""
        if self._broker.events is not None:
            self._broker.events(event, change, b"", self._user)

    def _apply_one(self, change: Change) -> None:
        broker = self._broker
        if isinstance(change, PutParameter):
            broker.parameters[change.vhost, change.component, change.name] = change.value
            vhost = broker.vhosts.get(change.vhost)
            if vhost is not None:
                vhost.put_parameter(change.component, change.name, change.value)
        elif isinstance(change, DeleteParameter):
            broker.parameters.pop((change.vhost, change.component, change.name), None)
            vhost = broker.vhosts.get(change.vhost)
            if vhost is not None:
                vhost.delete_parameter(change.component, change.name)
        else:
            broker.access.apply(change)
            if isinstance(change, DeleteUser):
                self._close_connections_of(change.name)

    def _close_connections_of(self, user: bytes) -> None:
        text = f"user '{name_text(user)}' is deleted"
        for connection in list(self._broker.connections):
            if connection.client.user_name == user:
                connection.fail(ConnectionException(CONNECTION_FORCED, text))
                connection.touch()

    def _end(self, done: OnDone, refusal: Refusal | None) -> None:
        self._is_busy = False
        done(refusal)
        self._work()
