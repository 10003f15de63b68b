"""The keys of policies and operator policies, and the checks of their values.

All texts are those of RabbitMQ 3.10.8, which checks the keys in groups and reports the first error.
Some keys belong to features of a later version of warren: they are checked and stored, but not
acted on (`PolicyKey.is_waiting`).
"""

from __future__ import annotations

import re
from typing import Final, final

from mypy_extensions import mypyc_attr

from warrenmq.broker.policies.mirroring import NAMES, check_mirroring
from warrenmq.broker.policies.values import as_int, is_integer
from warrenmq.vocabulary.erlang_text import error_text, settings_text, term_text
from warrenmq.vocabulary.patterns.errors import PatternError
from warrenmq.vocabulary.patterns.pattern import compiled

# Values of `PolicyKey.target`.
QUEUES: Final = "queues"
EXCHANGES: Final = "exchanges"
ALL: Final = "all"
# A target that no policy names: of the queues, those that are declared as quorum queues.
QUORUM_QUEUES: Final = "quorum queues"

MESSAGE_TTL: Final = "message-ttl"
EXPIRES: Final = "expires"
MAX_LENGTH: Final = "max-length"
MAX_LENGTH_BYTES: Final = "max-length-bytes"
OVERFLOW: Final = "overflow"
DEAD_LETTER_EXCHANGE: Final = "dead-letter-exchange"
DEAD_LETTER_ROUTING_KEY: Final = "dead-letter-routing-key"
DELIVERY_LIMIT: Final = "delivery-limit"
QUEUE_MODE: Final = "queue-mode"
QUEUE_VERSION: Final = "queue-version"
ALTERNATE_EXCHANGE: Final = "alternate-exchange"

# Kinds of values.
_NUMBER: Final = 0
_TEXT: Final = 1
_CHOICE: Final = 2
_AGE: Final = 3
# A value that a function for several keys checks.
_GROUPED: Final = 4

# Keys of other types of queues. A policy with one of them applies to no classic queue.
NOT_CLASSIC: Final[tuple[str, ...]] = (
    "delivery-limit",
    "dead-letter-strategy",
    "queue-leader-locator",
    "max-age",
    "stream-max-segment-size-bytes",
)

# Keys that quorum queues do not have. A policy with one of them applies to no quorum queue.
NOT_QUORUM: Final[tuple[str, ...]] = (
    "ha-mode",
    "ha-params",
    "ha-promote-on-failure",
    "ha-promote-on-shutdown",
    "ha-sync-mode",
    "max-age",
    "queue-master-locator",
    "queue-mode",
    "stream-max-segment-size-bytes",
)

_SEGMENT_BYTES_MAX: Final = 3_000_000_000
_AGE_PATTERN: Final = re.compile(r"0*[1-9][0-9]*[YMDhms]", re.ASCII)
_UPSTREAMS: Final = {
    "federation-upstream-set": "federation upstream set name",
    "federation-upstream": "federation upstream name",
    "federation-upstream-pattern": "federation upstream pattern name",
}


@final
@mypyc_attr(native_class=True)
class PolicyKey:
    """A key of a policy's definition.

    `target`: what it concerns. `is_limit`: the lowest of argument, policy and operator policy
    applies, and an operator policy may have it; of other keys, the argument beats the policy.
    `is_waiting`: this version stores the key and does not act on it.
    """

    def __init__(
        self,
        name: str,
        target: str = QUEUES,
        kind: int = _GROUPED,
        noun: str = "",
        choices: tuple[object, ...] = (),
        least: int = 0,
        is_limit: bool = False,
        is_waiting: bool = True,
    ) -> None:
        self.name: str = name
        self.target: str = target
        self.is_limit: bool = is_limit
        self.is_waiting: bool = is_waiting
        self._kind: int = kind
        # The value in errors: `1 is not a valid {noun}`.
        self._noun: str = noun
        self._choices: tuple[object, ...] = choices
        self._least: int = least

    def argument(self) -> str:
        """The argument of a declaration that means the same."""
        return self.name if self.name == ALTERNATE_EXCHANGE else "x-" + self.name

    def check(self, value: object) -> str:
        """An error text, or "" if `value` is valid."""
        if self._kind == _NUMBER:
            is_valid = is_integer(value) and self._least <= as_int(value)
            if self.name == "stream-max-segment-size-bytes":
                is_valid = is_valid and as_int(value) <= _SEGMENT_BYTES_MAX
        elif self._kind == _TEXT:
            is_valid = isinstance(value, str)
        elif self._kind == _CHOICE:
            is_valid = not isinstance(value, (bool, float)) and value in self._choices
        elif self._kind == _AGE:
            is_valid = isinstance(value, str) and _AGE_PATTERN.fullmatch(value) is not None
        else:
            return ""
        return "" if is_valid else f"{term_text(value)} is not a valid {self._noun}"


def _limit(name: str, noun: str, least: int = 0, is_waiting: bool = True) -> PolicyKey:
    return PolicyKey(name, QUEUES, _NUMBER, noun, (), least, True, is_waiting)


def _text(name: str, noun: str, target: str = QUEUES, is_waiting: bool = True) -> PolicyKey:
    return PolicyKey(name, target, _TEXT, noun, (), 0, False, is_waiting)


def _choice(
    name: str, noun: str, choices: tuple[object, ...], is_waiting: bool = True
) -> PolicyKey:
    return PolicyKey(name, QUEUES, _CHOICE, noun, choices, 0, False, is_waiting)


_KEYS: Final = (
    _limit(MESSAGE_TTL, "message TTL", is_waiting=False),
    _limit(EXPIRES, "queue expiry", 1, is_waiting=False),
    _limit(MAX_LENGTH, "maximum length", is_waiting=False),
    _limit(MAX_LENGTH_BYTES, "maximum length in bytes", is_waiting=False),
    _limit("max-in-memory-length", "maximum memory in bytes"),
    _limit("max-in-memory-bytes", "maximum memory in bytes"),
    _limit(DELIVERY_LIMIT, "delivery limit", is_waiting=False),
    _text(DEAD_LETTER_EXCHANGE, "dead letter exchange name", is_waiting=False),
    _text(DEAD_LETTER_ROUTING_KEY, "dead letter routing key", is_waiting=False),
    _choice("dead-letter-strategy", "dead letter strategy", ("at-most-once", "at-least-once")),
    _choice(
        OVERFLOW,
        "overflow value",
        ("drop-head", "reject-publish", "reject-publish-dlx"),
        is_waiting=False,
    ),
    _choice(QUEUE_MODE, "queue-mode value", ("default", "lazy"), is_waiting=False),
    _choice(QUEUE_VERSION, "queue-version value", (1, 2), is_waiting=False),
    _text(ALTERNATE_EXCHANGE, "alternate exchange name", EXCHANGES, is_waiting=False),
    _choice(
        "queue-leader-locator",
        "queue leader locator value",
        ("client-local", "balanced", "random", "least-leaders"),
    ),
    PolicyKey("max-age", QUEUES, _AGE, "max age"),
    PolicyKey("stream-max-segment-size-bytes", QUEUES, _NUMBER, "segment size"),
    PolicyKey("queue-master-locator"),
    *[PolicyKey(name, is_waiting=False) for name in NAMES],
    PolicyKey("federation-upstream-set", ALL),
    PolicyKey("federation-upstream", ALL),
    PolicyKey("federation-upstream-pattern", ALL),
)
POLICY_KEYS: Final[dict[str, PolicyKey]] = {key.name: key for key in _KEYS}


def check_settings(settings: dict[str, object], is_operator: bool) -> str:
    """An error text for the definition of a policy, or "" if it is valid.

    `is_operator`: an operator policy may have limits only.
    """
    unknown: dict[str, object] = {}
    for name in settings:
        key = POLICY_KEYS.get(name)
        if key is None or (is_operator and not key.is_limit):
            unknown[name] = settings[name]
    known = {name: value for name, value in settings.items() if name not in unknown}
    text = _check_master_locator(known) or check_mirroring(known)
    if text:
        return text
    for name in sorted(known):
        text = POLICY_KEYS[name].check(known[name])
        if text:
            return text
    text = _check_federation(known)
    if text:
        return text
    if len(unknown) > 0:
        return f"{settings_text(unknown)} are not recognised policy settings"
    return ""


def _check_master_locator(settings: dict[str, object]) -> str:
    value = settings.get("queue-master-locator", "random")
    if isinstance(value, str) and value in ("min-masters", "client-local", "random"):
        return ""
    return f"{term_text(value)} invalid queue-master-locator value"


def _check_federation(settings: dict[str, object]) -> str:
    given = [name for name in _UPSTREAMS if name in settings]
    if len(given) > 1:
        return "cannot specify federation-upstream, federation-upstream-set or federation-upstream-pattern together"
    for name in given:
        value = settings[name]
        if not isinstance(value, str):
            return f"{term_text(value)} is not a valid {_UPSTREAMS[name]}"
        if name == "federation-upstream-pattern":
            try:
                compiled(value)
            except PatternError as error:
                before = f"could not compile pattern {value} to a regular expression. Error: "
                return error_text(before, error)
    return ""
