"""Policies that change under load give what they would give if everything was declared after them.

Hundreds of queues stand by, so that a change takes several turns, and other changes, declarations
and messages come in between.
"""

import json
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tests.broker.policies.policy_model import ModelPolicies, ModelPolicy
from tests.support.brokers.amqp_frames import table
from tests.support.brokers.amqp_peer import Peer
from tests.support.brokers.memory_broker import MemoryBroker
from warrenmq.broker.policies.policy import check_policy
from warrenmq.queues.definition import QueueDefinition
from warrenmq.queues.queue import Queue
from warrenmq.queues.settings import QueueSettings
from warrenmq.wire.methods import ExchangeDeclare, ExchangeDelete, QueueDeclare, QueueDelete

CROWD = 200
# Policies that match nothing. A name is tried with each of them, so that a change takes many turns.
IDLE = 60
TURNS_MAX = 30
DAY_MS = 86_400_000
TIMES = st.integers(DAY_MS, DAY_MS + 3)
NAMES = st.sampled_from(["a", "ab", "b-1", "b-2", "x"])
PATTERNS = st.sampled_from(["", "^a", "b", "-1$", "^crowd-.*[02468]$", "^(?!crowd)", "^$"])
LIMITS = {
    "message-ttl": TIMES,
    "expires": TIMES,
    "max-length": st.integers(0, 5),
    # A key that no classic queue has.
    "delivery-limit": st.just(1),
}
ALL_KEYS = LIMITS | {
    "queue-mode": st.sampled_from(["lazy", "default"]),
    "alternate-exchange": st.sampled_from(["alt-1", "alt-2"]),
    "overflow": st.just("reject-publish"),
}


def definitions(keys: dict[str, Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional=keys).filter(bool)


def policies(keys: dict[str, Any]) -> st.SearchStrategy[ModelPolicy]:
    return st.builds(
        ModelPolicy,
        st.sampled_from("pqrs"),
        PATTERNS,
        st.sampled_from(["queues", "exchanges", "all"]),
        st.sampled_from([-1, 0, 0.5, 1]),
        definitions(keys),
    )


class PolicyMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.memory = MemoryBroker()
        self.vhost = self.memory.vhost
        self.channel = Peer(self.memory.connect()).open().channel()
        self.now = ModelPolicies()
        # The policies since the last moment at which all queues had the newest.
        self.recent = [self.now.copy()]
        self.arguments: dict[str, dict[str, Any]] = {}
        self.alternates: dict[str, str | None] = {"amq.fanout": None}
        for number in range(CROWD):
            name = f"crowd-{number}"
            self.arguments[name] = {}
            definition = QueueDefinition(
                name.encode(), 1000 + number, False, False, None, b"", QueueSettings()
            )
            self.vhost.add_queue(definition, self.memory.now_ms)
        for number in range(IDLE):
            idle = ModelPolicy(f"idle-{number}", "no such name", "all", -2, {"max-length": 1})
            self.vhost.put_parameter("policy", idle.name, json.dumps(idle.value()))
        self.finish()

    def changed(self) -> None:
        self.recent.append(self.now.copy())

    @rule(policy=policies(ALL_KEYS))
    def put(self, policy: ModelPolicy) -> None:
        self.now.user[policy.name] = policy
        self.store("policy", policy)

    @rule(policy=policies(LIMITS))
    def put_operator_policy(self, policy: ModelPolicy) -> None:
        self.now.operator[policy.name] = policy
        self.store("operator_policy", policy)

    def store(self, component: str, policy: ModelPolicy) -> None:
        value = json.dumps(policy.value())
        check_policy(component, policy.name, value)
        self.vhost.put_parameter(component, policy.name, value)
        self.changed()

    @rule(name=st.sampled_from("pqrs"), component=st.sampled_from(["policy", "operator_policy"]))
    def clear(self, name: str, component: str) -> None:
        (self.now.user if component == "policy" else self.now.operator).pop(name, None)
        self.vhost.delete_parameter(component, name)
        self.changed()

    @rule(
        name=NAMES,
        arguments=st.fixed_dictionaries(
            {},
            optional={
                "x-message-ttl": TIMES,
                "x-expires": TIMES,
                "x-queue-mode": st.sampled_from(["lazy", "default"]),
            },
        ),
    )
    def declare_queue(self, name: str, arguments: dict[str, Any]) -> None:
        self.channel.call(QueueDelete(name.encode()))
        self.channel.call(QueueDeclare(name.encode(), arguments=table(**arguments)))
        # An equal declaration is one with equal arguments, whatever applies.
        self.channel.call(QueueDeclare(name.encode(), arguments=table(**arguments)))
        self.arguments[name] = arguments

    @rule(name=NAMES, alternate=st.sampled_from([None, "alt-3"]))
    def declare_exchange(self, name: str, alternate: str | None) -> None:
        self.channel.call(ExchangeDelete(name.encode()))
        arguments = {"alternate-exchange": alternate} if alternate else {}
        self.channel.call(ExchangeDeclare(name.encode(), b"fanout", arguments=table(**arguments)))
        self.alternates[name] = alternate

    @rule(name=NAMES)
    def delete(self, name: str) -> None:
        self.channel.call(QueueDelete(name.encode()))
        self.channel.call(ExchangeDelete(name.encode()))
        self.arguments.pop(name, None)
        self.alternates.pop(name, None)

    @rule(name=st.sampled_from(["a", "x", "crowd-0", "crowd-299"]))
    def publish(self, name: str) -> None:
        self.channel.publish(name.encode(), b"m" * 100)
        self.memory.pump()

    @rule()
    def finish(self) -> None:
        """A change reaches everything in a few turns, with nothing else to do."""
        for _ in range(TURNS_MAX):
            self.vhost.advance(self.memory.now_ms)
        assert not self.vhost.policies.is_applying()

    def settings_of(self, queue: Queue) -> tuple[Any, ...]:
        applied = queue.settings
        return (
            self.vhost.policies.policy_of(queue),
            self.vhost.policies.operator_policy_of(queue),
            applied.message_ttl_ms,
            applied.expires_ms,
            "lazy" if queue.backing.memory.is_lazy else "default",
        )

    @invariant()
    def settings_are_those_of_the_model(self) -> None:
        if not self.vhost.policies.is_applying():
            self.recent = [self.now.copy()]
        assert {queue.decode() for queue in self.vhost.queues} == self.arguments.keys()
        for name, arguments in self.arguments.items():
            queue = self.vhost.queues[name.encode()]
            found = self.settings_of(queue)
            assert found in [version.queue(name, arguments) for version in self.recent]
            if name not in ("crowd-0", "b-1"):
                continue
            merged = self.vhost.policies.of_queue(queue)
            assert (merged.definition if merged else {}) in [
                version.applied(name, "queues")[2] for version in self.recent
            ]
            view = {each.key: each.value for each in self.vhost.policies.view_queue(queue)}
            assert view.get("message-ttl", -1) == found[2]
            assert view.get("queue-mode", "default") == found[4]
            if queue.settings.expires_ms >= 0:
                assert queue in self.memory.broker.timed_queues
        for name, declared in self.alternates.items():
            alternate = self.vhost.router.exchanges[name.encode()].alternate
            assert (None if alternate is None else alternate.decode()) in [
                version.alternate(name, declared) for version in self.recent
            ]
        assert self.vhost.router.default_exchange.alternate is None


TestPolicyMachine = PolicyMachine.TestCase
TestPolicyMachine.settings = settings(
    max_examples=25,
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
