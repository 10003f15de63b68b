"""What policies give, by a model of its own: for tests that compare it with the product."""

import re
from dataclasses import dataclass, field
from typing import Any


@dataclass
class ModelPolicy:
    name: str
    pattern: str
    apply_to: str
    priority: float
    definition: dict[str, Any]

    def value(self) -> dict[str, Any]:
        """The value of the parameter."""
        return {
            "pattern": self.pattern,
            "apply-to": self.apply_to,
            "priority": self.priority,
            "definition": self.definition,
        }


@dataclass
class ModelPolicies:
    """All policies of a vhost."""

    user: dict[str, ModelPolicy] = field(default_factory=dict)
    operator: dict[str, ModelPolicy] = field(default_factory=dict)

    def copy(self) -> "ModelPolicies":
        return ModelPolicies(dict(self.user), dict(self.operator))

    def applied(self, name: str, target: str) -> tuple[str | None, str | None, dict[str, Any]]:
        """Names of the policies for a queue or exchange, and their effective definition."""
        user, operator = (_best(group, name, target) for group in (self.user, self.operator))
        merged = dict(user.definition) if user else {}
        for key, value in (operator.definition if operator else {}).items():
            merged[key] = min(value, merged.get(key, value))
        names = [each.name if each else None for each in (user, operator)]
        return names[0], names[1], merged

    def queue(self, name: str, arguments: dict[str, Any]) -> tuple[Any, ...]:
        """Names of the policies, time to live, expiry and mode of a queue."""
        user, operator, merged = self.applied(name, "queues")
        both = [
            min(
                (
                    source[key]
                    for source, key in ((arguments, f"x-{key}"), (merged, key))
                    if key in source
                ),
                default=-1,
            )
            for key in ("message-ttl", "expires")
        ]
        mode = arguments.get("x-queue-mode", merged.get("queue-mode", "default"))
        return user, operator, *both, mode

    def alternate(self, name: str, declared: str | None) -> str | None:
        """The alternate exchange of an exchange."""
        if declared is not None:
            return declared
        alternate: str | None = self.applied(name, "exchanges")[2].get("alternate-exchange")
        return alternate


def _best(group: dict[str, ModelPolicy], name: str, target: str) -> ModelPolicy | None:
    fitting = [
        policy
        for policy in group.values()
        if policy.apply_to in ("all", target)
        and re.search(policy.pattern, name)
        and not (target == "queues" and "delivery-limit" in policy.definition)
    ]
    return min(fitting, key=lambda policy: (-policy.priority, policy.name), default=None)
