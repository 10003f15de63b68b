"""The usual keys of policies, as the form offers them."""

from dataclasses import dataclass
from typing import Final

# Types of values in the form.
STRING: Final = "string"
NUMBER: Final = "number"
BOOLEAN: Final = "boolean"
LIST: Final = "list"
TYPES: Final = (STRING, NUMBER, BOOLEAN, LIST)


@dataclass(frozen=True)
class UsualKey:
    """A key, the type of its value, and what the value says. Operators may set limits only."""

    name: str
    type: str
    meaning: str
    is_limit: bool = False


USUAL_KEYS: Final[tuple[tuple[str, tuple[UsualKey, ...]], ...]] = (
    (
        "Queues [All types]",
        (
            UsualKey("max-length", NUMBER, "ready messages", is_limit=True),
            UsualKey("max-length-bytes", NUMBER, "bytes of ready messages", is_limit=True),
            UsualKey("overflow", STRING, "drop-head, reject-publish or reject-publish-dlx"),
            UsualKey("expires", NUMBER, "unused for so many ms, the queue goes", is_limit=True),
            UsualKey("dead-letter-exchange", STRING, "takes dead letters"),
            UsualKey("dead-letter-routing-key", STRING, "replaces that of dead letters"),
            UsualKey("message-ttl", NUMBER, "a message lives so many ms", is_limit=True),
        ),
    ),
    (
        "Queues [Classic]",
        (
            UsualKey("ha-mode", STRING, "all, exactly or nodes"),
            UsualKey("ha-params", NUMBER, "number of mirrors; for nodes: a list of names"),
            UsualKey("ha-sync-mode", STRING, "manual or automatic"),
            UsualKey("ha-promote-on-shutdown", STRING, "when-synced or always"),
            UsualKey("ha-promote-on-failure", STRING, "when-synced or always"),
            UsualKey("queue-mode", STRING, "default or lazy"),
            UsualKey("queue-version", NUMBER, "1 or 2"),
            UsualKey("queue-master-locator", STRING, "min-masters, client-local or random"),
        ),
    ),
    (
        "Queues [Quorum]",
        (
            UsualKey("delivery-limit", NUMBER, "deliveries of a message", is_limit=True),
            UsualKey("max-in-memory-length", NUMBER, "messages in memory", is_limit=True),
            UsualKey("max-in-memory-bytes", NUMBER, "bytes in memory", is_limit=True),
            UsualKey("dead-letter-strategy", STRING, "at-most-once or at-least-once"),
            UsualKey("queue-leader-locator", STRING, "client-local or balanced"),
        ),
    ),
    ("Exchanges", (UsualKey("alternate-exchange", STRING, "takes what no queue takes"),)),
)

# A policy with one of the keys applies to no queue of the type.
NOT_FOR: Final[dict[str, frozenset[str]]] = {
    "classic": frozenset(
        {
            "delivery-limit",
            "dead-letter-strategy",
            "queue-leader-locator",
            "max-age",
            "stream-max-segment-size-bytes",
        }
    ),
    "quorum": frozenset(
        {
            "ha-mode",
            "ha-params",
            "ha-promote-on-failure",
            "ha-promote-on-shutdown",
            "ha-sync-mode",
            "max-age",
            "queue-master-locator",
            "queue-mode",
            "stream-max-segment-size-bytes",
        }
    ),
}


def type_of(key: str) -> str:
    """The usual type of the value of a key."""
    for _, keys in USUAL_KEYS:
        for each in keys:
            if each.name == key:
                return each.type
    return STRING
