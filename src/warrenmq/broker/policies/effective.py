"""The settings in force: the arguments of a queue or exchange, its policy and operator policy.

Everything here is a pure function of what was declared and of the two policies that won. The lower
of two limits applies: of a policy and an operator policy, and of an argument and both. For all
other keys, the argument beats the policy.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64, mypyc_attr

from warrenmq.broker.policies import keys
from warrenmq.broker.policies.mirroring import mirroring_of
from warrenmq.broker.policies.policy import OPERATOR_POLICY, POLICY, Policy
from warrenmq.broker.policies.values import is_integer
from warrenmq.queues.arguments import OVERFLOW as OVERFLOWS
from warrenmq.queues.arguments import TIME_MAX_MS, declared_overflow
from warrenmq.queues.settings import (
    DROP_HEAD,
    NO_LIMIT,
    DeadLetterRule,
    LengthLimit,
    QueueSettings,
    QueueTraits,
    lower_limit,
)
from warrenmq.wire.field_table import decode_table

# `EffectiveSetting.source`, beside POLICY and OPERATOR_POLICY.
ARGUMENT: Final = "argument"

_MODE_ARGUMENT: Final = "x-queue-mode"


@final
@mypyc_attr(native_class=True)
class AppliedPolicies:
    """The policy and the operator policy that won for a name, at least one of them.

    `definition`: the settings that they give together, by key, in order of keys; RabbitMQ calls
    this the effective policy definition.
    """

    def __init__(self, policy: Policy | None, operator_policy: Policy | None) -> None:
        self.policy: Policy | None = policy
        self.operator_policy: Policy | None = operator_policy
        self.definition: dict[str, object] = _merged(policy, operator_policy)
        self.message_ttl_ms: i64 = _time_ms(self.definition.get(keys.MESSAGE_TTL))
        self.expires_ms: i64 = _time_ms(self.definition.get(keys.EXPIRES))
        self.max_length: i64 = _number(self.definition.get(keys.MAX_LENGTH))
        self.max_length_bytes: i64 = _number(self.definition.get(keys.MAX_LENGTH_BYTES))
        self.overflow: i64 = OVERFLOWS.get(
            _text(self.definition.get(keys.OVERFLOW)) or "", NO_LIMIT
        )
        self.delivery_limit: i64 = _number(self.definition.get(keys.DELIVERY_LIMIT))
        self.dead_letter_exchange: bytes | None = _name(
            self.definition.get(keys.DEAD_LETTER_EXCHANGE)
        )
        self.dead_letter_key: bytes | None = _name(
            self.definition.get(keys.DEAD_LETTER_ROUTING_KEY)
        )
        # "" without a mode.
        self.queue_mode: str = _text(self.definition.get(keys.QUEUE_MODE)) or ""
        self.alternate: bytes | None = _name(self.definition.get(keys.ALTERNATE_EXCHANGE))
        # The `ha-*` settings that are in force, by key; empty: the queue has no mirrors.
        self.mirroring: dict[str, object] = mirroring_of(self.definition)

    def policy_name(self) -> str | None:
        """The name of the policy, None without one."""
        return None if self.policy is None else self.policy.name

    def operator_policy_name(self) -> str | None:
        """The name of the operator policy, None without one."""
        return None if self.operator_policy is None else self.operator_policy.name

    def equals(self, other: AppliedPolicies) -> bool:
        """Whether both stand for equal policies."""
        return _equal(self.policy, other.policy) and _equal(
            self.operator_policy, other.operator_policy
        )


@final
@mypyc_attr(native_class=True)
class PolicySettings(QueueSettings):
    """Settings of a queue that `policies` have a part in."""

    def __init__(
        self,
        message_ttl_ms: i64,
        expires_ms: i64,
        is_lazy: bool,
        limit: LengthLimit | None,
        dead_letters: DeadLetterRule | None,
        delivery_limit: i64,
        traits: QueueTraits,
        policies: AppliedPolicies,
    ) -> None:
        super().__init__(
            message_ttl_ms, expires_ms, is_lazy, limit, dead_letters, delivery_limit, traits
        )
        self.policies: AppliedPolicies = policies


@final
@mypyc_attr(native_class=True)
class EffectiveSetting:
    """A key that applies to a queue or an exchange, and where its value comes from.

    `source`: ARGUMENT, POLICY or OPERATOR_POLICY; `policy`: the name of that policy, or "".
    `is_waiting`: this version shows the key, but does not act on it.
    """

    def __init__(self, key: str, value: object, source: str, policy: str, is_waiting: bool) -> None:
        self.key: str = key
        self.value: object = value
        self.source: str = source
        self.policy: str = policy
        self.is_waiting: bool = is_waiting


def queue_settings(
    declared: QueueSettings, arguments: bytes, policies: AppliedPolicies | None
) -> QueueSettings:
    """The settings that apply to a queue.

    `declared`: the settings that its `arguments` (table body) ask for.
    """
    if policies is None:
        return declared
    is_lazy = declared.is_lazy
    if policies.queue_mode and not _declares_mode(arguments):
        is_lazy = policies.queue_mode == "lazy"
    return PolicySettings(
        lower_limit(declared.message_ttl_ms, policies.message_ttl_ms),
        lower_limit(declared.expires_ms, policies.expires_ms),
        is_lazy,
        _length_limit(declared.limit, arguments, policies),
        _dead_letter_rule(declared.dead_letters, policies),
        lower_limit(declared.delivery_limit, policies.delivery_limit),
        declared.traits,
        policies,
    )


def _length_limit(
    declared: LengthLimit | None, arguments: bytes, policies: AppliedPolicies
) -> LengthLimit | None:
    messages = policies.max_length
    body_bytes = policies.max_length_bytes
    if declared is not None:
        messages = lower_limit(messages, declared.messages)
        body_bytes = lower_limit(body_bytes, declared.body_bytes)
    if messages == NO_LIMIT and body_bytes == NO_LIMIT:
        return None
    overflow = declared_overflow(decode_table(arguments)) if arguments else NO_LIMIT
    if overflow == NO_LIMIT:
        overflow = policies.overflow
    return LengthLimit(messages, body_bytes, max(overflow, i64(DROP_HEAD)))


def _dead_letter_rule(
    declared: DeadLetterRule | None, policies: AppliedPolicies
) -> DeadLetterRule | None:
    exchange = policies.dead_letter_exchange
    key = policies.dead_letter_key
    if declared is not None:
        exchange = declared.exchange
        if declared.routing_key is not None:
            key = declared.routing_key
    return None if exchange is None else DeadLetterRule(exchange, key)


def alternate_exchange(declared: bytes | None, policies: AppliedPolicies | None) -> bytes | None:
    """The alternate exchange that applies to an exchange with the argument `declared`."""
    if declared is not None or policies is None:
        return declared
    return policies.alternate


def effective_settings(
    target: str, arguments: bytes, policies: AppliedPolicies | None
) -> list[EffectiveSetting]:
    """The settings that are in force for a queue or an exchange, by key.

    `target`: QUEUES or EXCHANGES. `arguments`: the table body of the declaration. A value is a JSON
    value; one of an argument has the type that the table gave it, with texts as str.
    """
    table = decode_table(arguments) if arguments else {}
    found: list[EffectiveSetting] = []
    for name in sorted(keys.POLICY_KEYS):
        key = keys.POLICY_KEYS[name]
        if key.target not in (target, keys.ALL):
            continue
        field = table.get(key.argument())
        is_applied = policies is not None and name in policies.definition
        if field is not None:
            declared: object = field.value
            if isinstance(declared, bytes):
                declared = declared.decode("utf-8", "replace")
            if not (
                key.is_limit
                and policies is not None
                and is_applied
                and _lower(policies.definition[name], declared)
            ):
                found.append(EffectiveSetting(name, declared, ARGUMENT, "", key.is_waiting))
                continue
        if policies is not None and is_applied:
            found.append(_by_policy(name, policies, key.is_waiting))
    return found


def _by_policy(name: str, policies: AppliedPolicies, is_waiting: bool) -> EffectiveSetting:
    value = policies.definition[name]
    policy = policies.policy
    if policy is not None and name in policy.definition and policy.definition[name] == value:
        return EffectiveSetting(name, value, POLICY, policy.name, is_waiting)
    return EffectiveSetting(
        name, value, OPERATOR_POLICY, policies.operator_policy_name() or "", is_waiting
    )


def _merged(policy: Policy | None, operator_policy: Policy | None) -> dict[str, object]:
    settings: dict[str, object] = {}
    if policy is not None:
        settings.update(policy.definition)
    if operator_policy is not None:
        for key, value in operator_policy.definition.items():
            # An operator policy has limits only.
            if key not in settings or _lower(value, settings[key]):
                settings[key] = value
    return {key: settings[key] for key in sorted(settings)}


def _lower(one: object, other: object) -> bool:
    assert isinstance(one, int) and isinstance(other, int)
    return one < other


def _equal(one: Policy | None, other: Policy | None) -> bool:
    if one is None or other is None:
        return one is other
    return one is other or one.equals(other)


def _time_ms(value: object) -> i64:
    """A time in ms, NO_LIMIT for None.

    RabbitMQ accepts any number; a time longer than those of arguments is cut to theirs.
    """
    if not is_integer(value):
        return NO_LIMIT
    assert isinstance(value, int)
    time_ms: i64 = min(value, TIME_MAX_MS)
    return time_ms


def _number(value: object) -> i64:
    """A limit, NO_LIMIT for None; no queue has as many messages or bytes as the highest one."""
    if not is_integer(value):
        return NO_LIMIT
    assert isinstance(value, int)
    return min(value, 1 << 62)


def _name(value: object) -> bytes | None:
    return value.encode() if isinstance(value, str) else None


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _declares_mode(arguments: bytes) -> bool:
    return _MODE_ARGUMENT.encode() in arguments and _MODE_ARGUMENT in decode_table(arguments)
