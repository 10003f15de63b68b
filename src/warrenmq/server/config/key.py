"""`Key`: one row of the table of keys, and the words for when a change of a key takes effect."""

import re
from collections.abc import Callable
from typing import Final

from warrenmq.server.config.values import Parser

# When a new value takes effect.
RELOAD: Final = "reload"
CONNECT: Final = "reload, for new connections"
RESTART: Final = "restart"
FIRST_START: Final = "first start"
# Keys that are accepted and checked, and that the log names at the start.
LATER: Final = "waits for a later version"
NEVER: Final = "no effect in warren"

# Makes the value of a field from the parsed values of its members, by name.
Collector = Callable[[dict[str, object]], object]


class Key:
    """A key, or a pattern of keys in whose name `*` stands for one part.

    `field` is the field of `Config` that the key sets, such as `heartbeat`, or `tls.depth` in a
    group of options; "" for a key that is only checked.
    """

    __slots__ = (
        "collect",
        "effect",
        "field",
        "implies",
        "is_secret",
        "member",
        "members",
        "name",
        "overrides",
        "parse",
    )

    def __init__(
        self,
        name: str,
        field: str,
        parse: Parser,
        effect: str,
        *,
        collect: Collector | None = None,
        members: dict[str, object] | None = None,
        member: str = "",
        overrides: tuple[str, ...] = (),
        implies: dict[str, object] | None = None,
        is_secret: bool = False,
    ) -> None:
        self.name = name
        self.field = field
        self.parse = parse
        self.effect = effect
        # How members make the field, and the members of the default; None = the key alone makes it.
        self.collect = collect
        self.members = members or {}
        # The member that the key sets; of a pattern, the part in place of `*` is the member.
        self.member = member
        # The keys that a setting of this one puts out of force.
        self.overrides = overrides
        # Fields that take another value as well when this key is set.
        self.implies = implies or {}
        self.is_secret = is_secret

    def hides(self, value: str) -> bool:
        """Whether nobody may see `value`: a password, or a URL that may have one in it."""
        return value != "" and (self.is_secret or ("://" in value and "@" in value))


def parts_of(name: str) -> list[str]:
    r"""The parts of a key; `\.` is a dot inside a part, as in rabbitmq.conf."""
    if "\\" not in name:
        return name.split(".")
    return [part.replace("\\.", ".") for part in re.split(r"(?<!\\)\.", name)]


def is_match(pattern: str, parts: list[str]) -> bool:
    """Whether a key of these parts fits `pattern`."""
    wanted = pattern.split(".")
    return len(wanted) == len(parts) and all(
        part == want or (want == "*" and part != "")
        for want, part in zip(wanted, parts, strict=True)
    )


def in_order(members: dict[str, object]) -> tuple[object, ...]:
    """The values by the names of their members: numbers first, in the order of numbers."""
    return tuple(members[name] for name in sorted(members, key=_natural))


def chosen(members: dict[str, object]) -> tuple[str, ...]:
    """The names whose value is true."""
    return tuple(sorted(name for name, is_chosen in members.items() if is_chosen))


def chosen_set(members: dict[str, object]) -> frozenset[str]:
    """The names whose value is true, as a set."""
    return frozenset(chosen(members))


def pairs(members: dict[str, object]) -> tuple[tuple[str, object], ...]:
    """(name, value) of all members, by name."""
    return tuple(sorted(members.items()))


def _natural(name: str) -> tuple[bool, int, str]:
    is_number = name.isdecimal()
    return not is_number, int(name) if is_number else 0, name
