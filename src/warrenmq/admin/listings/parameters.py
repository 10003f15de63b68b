"""The listings of policies, operator policies, parameters and global parameters.

Definitions and values are JSON texts, as in RabbitMQ. Policies, pauses of queues and runs of
schedules are no parameters in a listing, although operator policies are.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from warrenmq.admin.listings.columns import Columns, ListingOf, vhost_of
from warrenmq.admin.protocol.control import List
from warrenmq.admin.protocol.schedules import PIPELINE_RUN
from warrenmq.broker.broker import Broker
from warrenmq.broker.policies.policy import POLICY, Policy
from warrenmq.broker.vhost.pauses import QUEUE_PAUSE
from warrenmq.vocabulary.names import name_text

# -- policies --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ListedPolicy:
    """A policy, or an operator policy, of a vhost."""

    vhost: bytes
    policy: Policy


def _find_policies(broker: Broker, request: List) -> Iterator[ListedPolicy]:
    vhost = vhost_of(broker, request)
    return iter([ListedPolicy(vhost.name, each) for each in vhost.policies.policies()])


def _find_operator_policies(broker: Broker, request: List) -> Iterator[ListedPolicy]:
    vhost = vhost_of(broker, request)
    return iter([ListedPolicy(vhost.name, each) for each in vhost.policies.operator_policies()])


_POLICY: Columns[ListedPolicy] = {
    "vhost": lambda each: name_text(each.vhost),
    "name": lambda each: each.policy.name,
    "pattern": lambda each: each.policy.pattern,
    "apply-to": lambda each: each.policy.apply_to,
    "definition": lambda each: compact_json(each.policy.definition),
    "priority": lambda each: each.policy.priority,
}
POLICIES = ListingOf(_POLICY, _find_policies)
OPERATOR_POLICIES = ListingOf(_POLICY, _find_operator_policies)

# -- parameters ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ListedParameter:
    """A parameter of a vhost or of the whole broker; `value` is JSON."""

    component: str
    name: str
    value: str


def _find_parameters(broker: Broker, request: List) -> Iterator[ListedParameter]:
    vhost = vhost_of(broker, request).name
    hidden = (POLICY, QUEUE_PAUSE, PIPELINE_RUN)
    found = [each for each in _parameters_of(broker, vhost) if each.component not in hidden]
    return iter(found)


def _find_global_parameters(broker: Broker, _request: List) -> Iterator[ListedParameter]:
    return iter(_parameters_of(broker, b""))


def _parameters_of(broker: Broker, vhost: bytes) -> list[ListedParameter]:
    return [
        ListedParameter(component, name, value)
        for (its_vhost, component, name), value in sorted(broker.parameters.items())
        if its_vhost == vhost
    ]


def _value(listed: ListedParameter) -> str:
    return compact_json(json.loads(listed.value))


def compact_json(value: Any) -> str:
    """`value` as JSON without spaces."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


PARAMETERS: ListingOf[ListedParameter] = ListingOf(
    {"component": lambda each: each.component, "name": lambda each: each.name, "value": _value},
    _find_parameters,
)
GLOBAL_PARAMETERS: ListingOf[ListedParameter] = ListingOf(
    {"name": lambda each: each.name, "value": _value}, _find_global_parameters
)
