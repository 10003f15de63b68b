"""Changes of vhosts, users, permissions and parameters: planned, stored, then put in force.

Operations are carried out one after another. An operation plans its changes when its turn comes, so
that it sees what the one before it did; a plan that refuses changes nothing. The changes are stored
all or none, and put in force when they are on disk: what a reply reports survives any crash.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from warrenmq.admin.definitions.in_force import AdministrationHost, DefinitionsInForce
from warrenmq.broker.broker import Broker
from warrenmq.broker.definitions.metadata import Change
from warrenmq.broker.definitions.shared import SharedDefinitions
from warrenmq.broker.event_listener import INTERNAL_USER
from warrenmq.vocabulary.error_codes import STORAGE_FAILED

# Changes that a cluster decides together; a transaction of etcd has no more than 128 operations,
# and as many conditions.
_PROPOSED_MAX: Final = 40
_CONFLICT: Final = "something that it relies on has changed meanwhile; repeat it"


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


class Administration:
    """The administration of `broker`; `host` stores what it changes.

    `in_force` has the definitions that apply. In a cluster, the operations are proposed instead of
    stored, and every node puts in force what is decided.
    """

    def __init__(self, broker: Broker, host: AdministrationHost) -> None:
        self._broker = broker
        self._host = host
        self.in_force = DefinitionsInForce(broker, host)
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
                self.in_force.apply(changes, self._user, on_applied)

        def on_applied(failure: str) -> None:
            self._end(done, Refusal(STORAGE_FAILED, failure) if failure else None)

        if self._broker.shared is not None:
            self._propose(self._broker.shared, changes, on_applied)
        else:
            self._host.store(changes, on_stored)

    def _propose(
        self, shared: SharedDefinitions, changes: list[Change], done: Callable[[str], None]
    ) -> None:
        """Let the cluster decide `changes`: together, unless they are those of a large import."""

        def on_decided(failure: str, _now_ms: int) -> None:
            if failure:
                done(f"the cluster has not decided the change: {failure}")
            elif len(changes) > _PROPOSED_MAX:
                self._propose(shared, changes[_PROPOSED_MAX:], done)
            else:
                done("")

        shared.propose(changes[:_PROPOSED_MAX], on_decided, _CONFLICT)

    def _end(self, done: OnDone, refusal: Refusal | None) -> None:
        self._is_busy = False
        done(refusal)
        self._work()
