"""Puts stored definitions in force: users, rights, parameters, policies, vhosts.

A node that runs alone does so with what it has stored, a node of a cluster with what the cluster
has decided. Opening and closing a vhost takes some turns of the loop, so what comes after it waits.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Protocol

from warrenmq.admin.definitions.events import announce_change
from warrenmq.broker.broker import Broker
from warrenmq.broker.definitions.metadata import (
    Change,
    DeleteParameter,
    DeleteUser,
    DeleteVhost,
    PutParameter,
    PutVhost,
)
from warrenmq.broker.vhost.vhost import Vhost
from warrenmq.vocabulary.names import name_text
from warrenmq.wire.errors import CONNECTION_FORCED, ConnectionException


class AdministrationHost(Protocol):
    """The disk of a node, as an administration needs it. All callbacks come on the loop."""

    def store(self, changes: list[Change], done: Callable[[str], None]) -> None:
        """Store `changes`, all or none; then call `done` with "" or with what failed."""

    def open_vhost(self, definition: PutVhost, done: Callable[[str], None]) -> None:
        """Make the vhost usable for clients; then call `done` with "" or with what failed."""

    def close_vhost(self, vhost: Vhost, done: Callable[[], None]) -> None:
        """Delete the vhost's queues and its directory; then call `done`."""


class DefinitionsInForce:
    """The definitions that apply in `broker`; `host` opens and closes vhosts."""

    def __init__(self, broker: Broker, host: AdministrationHost) -> None:
        self._broker = broker
        self._host = host

    def apply(self, changes: list[Change], user: bytes, done: Callable[[str], None]) -> None:
        """Put `changes` in force, in order; `user` asked for them.

        `done("")` is called at the end, now or later; `done(failure)` if a vhost does not open.
        """
        self._apply(deque(changes), user, done)

    def _apply(self, changes: deque[Change], user: bytes, done: Callable[[str], None]) -> None:
        while changes:
            change = changes.popleft()
            if isinstance(change, PutVhost):
                vhost = self._broker.vhosts.get(change.name)
                if vhost is None:
                    self._open(change, changes, user, done)
                    return
                announce_change(self._broker, change, user)
                vhost.define(change)
            elif isinstance(change, DeleteVhost):
                vhost = self._broker.vhosts.get(change.name)
                if vhost is not None:
                    self._close(vhost, change, changes, user, done)
                    return
            else:
                announce_change(self._broker, change, user)
                self._apply_one(change)
        done("")

    def _open(
        self, definition: PutVhost, rest: deque[Change], user: bytes, done: Callable[[str], None]
    ) -> None:
        def on_open(failure: str) -> None:
            if failure:
                name = name_text(definition.name)
                done(f"vhost '{name}' is stored, but its directory is not usable: {failure}")
            else:
                self._announce("vhost.created", definition, user)
                self._apply(rest, user, done)

        self._host.open_vhost(definition, on_open)

    def _close(
        self,
        vhost: Vhost,
        change: DeleteVhost,
        rest: deque[Change],
        user: bytes,
        done: Callable[[str], None],
    ) -> None:
        broker = self._broker
        broker.remove_vhost(vhost)
        broker.access.apply(change)
        for key in [key for key in broker.parameters if key[0] == vhost.name]:
            del broker.parameters[key]
        text = f"vhost '{name_text(vhost.name)}' is deleted"
        for connection in list(broker.connections):
            if connection.vhost is vhost:
                connection.fail(ConnectionException(CONNECTION_FORCED, text))
                connection.touch()

        def on_closed() -> None:
            self._announce("vhost.deleted", change, user)
            self._apply(rest, user, done)

        self._host.close_vhost(vhost, on_closed)

    def _announce(self, event: str, change: Change, user: bytes) -> None:
        """Tell the listener, if there is one, of a vhost that was opened or closed."""
        if self._broker.events is not None:
            self._broker.events(event, change, b"", user)

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
