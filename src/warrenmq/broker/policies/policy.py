"""One policy: which names it matches, how its value is checked, and which of several policies wins.

A policy is stored as a parameter of its vhost. Its value is a JSON object: `pattern`, `definition`,
`priority` and, optionally, `apply-to`.
"""

from __future__ import annotations

import json
from typing import Final, final

from mypy_extensions import mypyc_attr

from warrenmq.broker.policies import keys
from warrenmq.broker.policies.mirroring import normal_definition
from warrenmq.vocabulary.erlang_text import error_text, settings_text, term_text
from warrenmq.vocabulary.patterns.errors import PatternError
from warrenmq.vocabulary.patterns.pattern import Pattern, compiled

# Components of parameters that are policies.
POLICY: Final = "policy"
OPERATOR_POLICY: Final = "operator_policy"

_FIELDS: Final = ("apply-to", "definition", "pattern", "priority")

# Keys with which a policy does not apply, by target.
_NOT_FOR: Final[dict[str, tuple[str, ...]]] = {
    keys.QUEUES: keys.NOT_CLASSIC,
    keys.QUORUM_QUEUES: keys.NOT_QUORUM,
}


@final
@mypyc_attr(native_class=True)
class Policy:
    """A policy or an operator policy.

    `pattern`: a regular expression that is searched for in names, not anchored. `apply_to`: QUEUES,
    EXCHANGES or ALL of `keys.py`. `definition`: JSON values by key, in order of keys.
    """

    def __init__(
        self,
        name: str,
        pattern: str,
        apply_to: str,
        priority: int | float,
        definition: dict[str, object],
    ) -> None:
        """Raises PatternError if `pattern` is invalid or not supported."""
        self.name: str = name
        self.pattern: str = pattern
        self.apply_to: str = apply_to
        # The number as it was set: 1 and 1.0 are equal, and each is shown as it was written.
        self.priority: int | float = priority
        self.definition: dict[str, object] = {key: definition[key] for key in sorted(definition)}
        self._matcher: Pattern = compiled(pattern)

    def concerns(self, target: str) -> bool:
        """Whether the policy applies to QUEUES, or to EXCHANGES.

        A policy with a key of other types of queues applies to no queue of this type, whatever else
        it says.
        """
        for key in _NOT_FOR.get(target, ()):
            if key in self.definition:
                return False
        return self.apply_to in (keys.ALL, keys.QUEUES if target == keys.QUORUM_QUEUES else target)

    def matches(self, name: bytes) -> bool:
        """Whether the pattern is found in `name`."""
        return self._matcher.is_found_in(name)

    def equals(self, other: Policy) -> bool:
        """Whether both are the same in all they say."""
        return (
            self.name == other.name
            and self.pattern == other.pattern
            and self.apply_to == other.apply_to
            and self.priority == other.priority
            and self.definition == other.definition
        )


def check_policy(component: str, name: str, value: str) -> None:
    """Check the policy `name`, or the operator policy, whose JSON value is `value`.

    Raises ValueError with RabbitMQ's text, which has a line for each error.
    """
    decoded: object = json.loads(value)
    fields: dict[str, object] = decoded if isinstance(decoded, dict) else {}
    errors: list[str] = []
    unknown = {key: fields[key] for key in fields if key not in _FIELDS}
    if len(unknown) > 0:
        errors.append(f"Unrecognised terms {settings_text(unknown)} in {name}")
    for field in ("definition", "apply-to", "pattern", "priority"):
        if field in fields:
            errors.append(_check_field(field, fields[field], component))
        elif field != "apply-to":
            errors.append(f'Key "{field}" not found in {name}')
    lines = [f"{error}\n" for error in errors if error]
    if len(lines) > 0:
        raise ValueError("Validation failed\n\n" + "".join(lines))


def parse_policy(name: str, value: str) -> Policy:
    """The policy `name` with the JSON `value`, which `check_policy` has accepted.

    Raises ValueError for another value.
    """
    fields: object = json.loads(value)
    if not isinstance(fields, dict):
        raise ValueError("a policy is a JSON object")
    pattern: object = fields.get("pattern")
    priority: object = fields.get("priority")
    apply_to: object = fields.get("apply-to", keys.ALL)
    definition = _settings(fields.get("definition"))
    if (
        not isinstance(pattern, str)
        or isinstance(priority, bool)
        or not isinstance(priority, (int, float))
        or not isinstance(apply_to, str)
        or definition is None
    ):
        raise ValueError("a field of the policy is missing or has a wrong type")
    try:
        return Policy(name, pattern, apply_to, priority, normal_definition(definition))
    except PatternError as error:
        raise ValueError(f"invalid pattern: {error}") from None


def in_order(policies: list[Policy], target: str) -> list[Policy]:
    """The policies for `target`, in the order in which they win: the first that matches applies.

    The highest priority wins. RabbitMQ leaves open which of equal ones does; here it is the first
    name.
    """
    fitting = [policy for policy in policies if policy.concerns(target)]
    fitting.sort(key=lambda policy: (-policy.priority, policy.name))
    return fitting


def _settings(definition: object) -> dict[str, object] | None:
    """The settings of a definition by key; None if it is no definition.

    A definition is an object, or a list of pairs, as RabbitMQ's exports of definitions have it for
    operator policies.
    """
    if isinstance(definition, dict):
        return definition
    if not isinstance(definition, list):
        return None
    settings: dict[str, object] = {}
    for pair in definition:
        if not isinstance(pair, list) or len(pair) != 2 or not isinstance(pair[0], str):
            return None
        settings[pair[0]] = pair[1]
    return settings


def _check_field(field: str, value: object, component: str) -> str:
    """An error text for a field of a policy, or "" if it is valid."""
    if field == "definition":
        settings = _settings(value)
        if settings is None:
            validator = "policy_validator" if component == POLICY else "operator_policy_validator"
            return f"parse error while reading policy definition: {term_text(value)}. Validator: {validator}."
        if len(settings) == 0:
            return "no policy provided"
        return keys.check_settings(settings, component == OPERATOR_POLICY)
    if field == "apply-to":
        if isinstance(value, str) and value in (keys.QUEUES, keys.EXCHANGES, keys.ALL):
            return ""
        shown = value if isinstance(value, str) else term_text(value)
        return f"apply-to '{shown}' unrecognised; should be 'queues', 'exchanges' or 'all'"
    if field == "pattern":
        return _check_pattern(value)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return f"priority should be a number, actually was {term_text(value)}"
    return ""


def _check_pattern(value: object) -> str:
    if not isinstance(value, str):
        return f"pattern should be a binary but was {term_text(value)}"
    try:
        compiled(value)
    except PatternError as error:
        return error_text("pattern should be regular expression but is invalid: ", error)
    return ""
