"""The policies of a vhost, and how its queues and exchanges get what applies to them.

A new queue or exchange gets the newest policies at once. After a change of a policy, all queues and
exchanges are checked again, a slice at the end of each turn, so that no client waits. When another
change comes meanwhile, the check starts over with those that wait the longest, so that frequent
changes starve nobody.

The settings of a queue are a pure function of its declaration and the policies (`effective.py`);
`PolicySettings` name the policies that a queue has at this moment.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from mypy_extensions import i64

from warrenmq.broker.definitions.metadata import PutParameter
from warrenmq.broker.policies.effective import (
    AppliedPolicies,
    EffectiveSetting,
    PolicySettings,
    alternate_exchange,
    effective_settings,
    queue_settings,
)
from warrenmq.broker.policies.keys import EXCHANGES, QUEUES, QUORUM_QUEUES
from warrenmq.broker.policies.policy import (
    OPERATOR_POLICY,
    POLICY,
    Policy,
    in_order,
    parse_policy,
)
from warrenmq.queues.message_taker import MessageTaker
from warrenmq.queues.queue import Queue
from warrenmq.queues.settings import NO_LIMIT
from warrenmq.routing.exchange import Destination, Exchange
from warrenmq.routing.router import Router

logger = logging.getLogger("warrenmq.policies")

# Steps of one turn. A step is a search of a pattern in a name, a microsecond or less.
_TURN_STEPS: Final = 1024
# Steps that a queue or exchange costs beside these searches.
_VISIT_STEPS: Final = 4


class VhostPolicies:
    """The policies of a vhost, whose queues and exchanges `router` has.

    `wake` asks for the end of a turn, which calls `advance`.
    """

    def __init__(self, router: Router, wake: Callable[[], None]) -> None:
        self._router: Router = router
        self._wake: Callable[[], None] = wake
        self._policies: dict[str, Policy] = {}
        self._operator_policies: dict[str, Policy] = {}
        self._for_queues: PolicyOrder = PolicyOrder([], [], QUEUES)
        self._for_quorum_queues: PolicyOrder = PolicyOrder([], [], QUORUM_QUEUES)
        self._for_exchanges: PolicyOrder = PolicyOrder([], [], EXCHANGES)
        # Queues and exchanges that may have other policies than the newest, from `_position` on.
        self._pending: list[Destination] = []
        self._position: int = 0
        # Queues and exchanges that got the newest policies while others were pending.
        self._seen: list[Destination] = []

    # -- the policies ------------------------------------------------------------------------------

    def load(self, vhost_name: bytes, parameters: list[PutParameter]) -> None:
        """Take over the stored policies; called at a start before queues and exchanges are made."""
        for parameter in parameters:
            if parameter.vhost != vhost_name:
                continue
            policies = self._of(parameter.component)
            if policies is None:
                continue
            try:
                policies[parameter.name] = parse_policy(parameter.name, parameter.value)
            except ValueError as error:
                logger.error("skipped the policy %r: %s", parameter.name, error)
        self._set_order()
        for exchange in self._router.exchanges.values():
            self.on_exchange(exchange)

    def put(self, component: str, name: str, value: str) -> None:
        """Set a policy or an operator policy to a value that `check_policy` has accepted.

        A component that is neither is ignored.
        """
        policies = self._of(component)
        if policies is None:
            return
        policy = parse_policy(name, value)
        before = policies.get(name)
        if before is None or not before.equals(policy):
            policies[name] = policy
            self._on_change()

    def clear(self, component: str, name: str) -> None:
        """Delete a policy or an operator policy, if there is one."""
        policies = self._of(component)
        if policies is not None and name in policies:
            del policies[name]
            self._on_change()

    def policies(self) -> list[Policy]:
        """The policies, in order of names."""
        return [self._policies[name] for name in sorted(self._policies)]

    def operator_policies(self) -> list[Policy]:
        """The operator policies, in order of names."""
        return [self._operator_policies[name] for name in sorted(self._operator_policies)]

    # -- views -------------------------------------------------------------------------------------

    def of_queue(self, queue: MessageTaker) -> AppliedPolicies | None:
        """The policies whose settings the queue has at this moment, None without any."""
        settings = queue.settings
        return settings.policies if isinstance(settings, PolicySettings) else None

    def of_name(self, name: bytes, is_quorum: bool = False) -> AppliedPolicies | None:
        """The newest policies for a queue called `name`, None without any.

        `is_quorum`: it is declared as a quorum queue.
        """
        return (self._for_quorum_queues if is_quorum else self._for_queues).find(name)

    def of_exchange(self, exchange: Exchange) -> AppliedPolicies | None:
        """The policies that apply to an exchange, None without any."""
        return self._for_exchanges.find(exchange.name)

    def policy_of(self, queue: MessageTaker) -> str | None:
        """The name of the policy of a queue, None without one."""
        policies = self.of_queue(queue)
        return None if policies is None else policies.policy_name()

    def operator_policy_of(self, queue: MessageTaker) -> str | None:
        """The name of the operator policy of a queue, None without one."""
        policies = self.of_queue(queue)
        return None if policies is None else policies.operator_policy_name()

    def view_queue(self, queue: MessageTaker) -> list[EffectiveSetting]:
        """Each key that applies to a queue, with where its value comes from."""
        return effective_settings(QUEUES, queue.definition.arguments, self.of_queue(queue))

    # -- new queues and exchanges ------------------------------------------------------------------

    def on_queue(self, queue: MessageTaker) -> None:
        """Give a new queue the settings that apply to it."""
        if self.is_applying():
            self._seen.append(queue)
        policies = self._order_for(queue).find(queue.name)
        if policies is not None:
            definition = queue.definition
            queue.apply(queue_settings(definition.settings, definition.arguments, policies))

    def on_exchange(self, exchange: Exchange) -> None:
        """Give a new exchange the alternate exchange that applies to it."""
        if self.is_applying():
            self._seen.append(exchange)
        self._visit_exchange(exchange)

    # -- turns -------------------------------------------------------------------------------------

    def is_applying(self) -> bool:
        """Whether queues or exchanges may not have the newest policies yet."""
        return self._position < len(self._pending)

    def advance(self, now_ms: i64) -> bool:
        """Give some more queues and exchanges the newest policies; True if others are left."""
        if not self.is_applying():
            return False
        steps: i64 = 0
        visit_steps: i64 = _VISIT_STEPS + self._for_queues.count + self._for_exchanges.count
        while steps < _TURN_STEPS and self.is_applying():
            steps += visit_steps
            pending = self._pending[self._position]
            self._position += 1
            if isinstance(pending, MessageTaker):
                if not pending.is_deleted:
                    self._visit_queue(pending, now_ms)
                    self._seen.append(pending)
            elif isinstance(pending, Exchange):
                if self._router.exchanges.get(pending.name) is pending:
                    self._visit_exchange(pending)
                    self._seen.append(pending)
        if self.is_applying():
            self._wake()
            return True
        self._pending = []
        self._position = 0
        self._seen = []
        return False

    # -- inside ------------------------------------------------------------------------------------

    def _of(self, component: str) -> dict[str, Policy] | None:
        if component == POLICY:
            return self._policies
        return self._operator_policies if component == OPERATOR_POLICY else None

    def _set_order(self) -> None:
        policies = list(self._policies.values())
        operator_policies = list(self._operator_policies.values())
        self._for_queues = PolicyOrder(policies, operator_policies, QUEUES)
        self._for_quorum_queues = PolicyOrder(policies, operator_policies, QUORUM_QUEUES)
        self._for_exchanges = PolicyOrder(policies, operator_policies, EXCHANGES)

    def _order_for(self, queue: MessageTaker) -> PolicyOrder:
        return self._for_quorum_queues if queue.settings.traits.is_quorum else self._for_queues

    def _on_change(self) -> None:
        self._set_order()
        if self.is_applying():
            self._pending = self._pending[self._position :] + self._seen
        else:
            self._pending = list(self._router.exchanges.values())
            self._pending.extend(self._router.queues.values())
        self._position = 0
        self._seen = []
        self._wake()

    def _visit_queue(self, queue: MessageTaker, now_ms: i64) -> None:
        policies = self._order_for(queue).find(queue.name)
        before = self.of_queue(queue)
        if policies is None or before is None:
            if policies is before:
                return
        elif policies.equals(before):
            return
        definition = queue.definition
        settings = queue_settings(definition.settings, definition.arguments, policies)
        if settings.expires_ms != NO_LIMIT and isinstance(queue, Queue):
            # The time to expiry starts over whenever the queue's policies change, as in RabbitMQ.
            queue.last_used_ms = now_ms
        queue.apply(settings)

    def _visit_exchange(self, exchange: Exchange) -> None:
        if exchange is self._router.default_exchange:
            # RabbitMQ shows a policy here, but the default exchange never uses an alternate one.
            return
        policies = self._for_exchanges.find(exchange.name)
        alternate = alternate_exchange(exchange.declared_alternate, policies)
        if alternate != exchange.alternate:
            self._router.set_alternate(exchange, alternate)


class PolicyOrder:
    """The policies for one target, as QUEUES, in the order in which they are tried."""

    def __init__(
        self, policies: list[Policy], operator_policies: list[Policy], target: str
    ) -> None:
        self._policies: list[Policy] = in_order(policies, target)
        self._operator_policies: list[Policy] = in_order(operator_policies, target)
        # The most searches of one `find`.
        self.count: int = len(self._policies) + len(self._operator_policies)
        # One object for all names with the same two winners.
        self._known: dict[tuple[Policy | None, Policy | None], AppliedPolicies] = {}

    def find(self, name: bytes) -> AppliedPolicies | None:
        """The policies that win for `name`, None if none matches."""
        if self.count == 0:
            return None
        policy = _first(self._policies, name)
        operator_policy = _first(self._operator_policies, name)
        if policy is None and operator_policy is None:
            return None
        key = (policy, operator_policy)
        known = self._known.get(key)
        if known is None:
            known = AppliedPolicies(policy, operator_policy)
            self._known[key] = known
        return known


def _first(policies: list[Policy], name: bytes) -> Policy | None:
    for policy in policies:
        if policy.matches(name):
            return policy
    return None
