"""The base of exchanges and queues: a name, flags, and arguments with names of their own.

An argument that many people use is a field: `message_ttl` is the argument `x-message-ttl`. A
declaration may give it either way. The field is the truth afterwards, and `arguments` keeps only
the arguments without a field, so that equal declarations are equal objects.
"""

import dataclasses
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, ClassVar, Final

from warrenmq.topology.arguments import (
    Arguments,
    ArgumentValue,
    check_name,
    checked_arguments,
    same_value,
)

_ARGUMENT: Final = "argument"
_VALUE_OF_TRUE: Final = "value of True"
_NAMES_OF_TYPES: Final = {int: "a whole number", str: "a text", bool: "true or false"}


def argument(name: str, type: type[int] | type[str]) -> Any:
    """A dataclass field for the argument `name`; None means that it is not declared."""
    return field(default=None, metadata={_ARGUMENT: name, "type": type})


def flag_argument(name: str, value_of_true: ArgumentValue) -> Any:
    """A dataclass field that is True when the argument `name` is declared with `value_of_true`."""
    return field(
        default=False, metadata={_ARGUMENT: name, _VALUE_OF_TRUE: value_of_true, "type": bool}
    )


@dataclass(frozen=True, eq=False)
class Declarable:
    """An exchange or a queue."""

    # "exchange" or "queue".
    kind: ClassVar[str]

    name: str
    _: KW_ONLY
    durable: bool = True
    auto_delete: bool = False
    arguments: Arguments = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_name(self.name, f"the name of the {self.kind}")
        self._check_types()
        left = checked_arguments(self.arguments, f"{self}: arguments")
        for each in argument_fields(self):
            self._take_argument(each, left)
        object.__setattr__(self, "arguments", left)
        # A value of a field gets the same check as a value of the table.
        checked_arguments(self.declared_arguments, str(self))

    def _check_types(self) -> None:
        """TypeError unless flags are booleans and fields of arguments have the argument's type."""
        for each in dataclasses.fields(self):
            expected = each.metadata.get("type", bool if isinstance(each.default, bool) else None)
            value = getattr(self, each.name)
            is_missing = value is None and _ARGUMENT in each.metadata
            if expected is not None and not is_missing and type(value) is not expected:
                raise TypeError(
                    f"{self}: {each.name} is {value!r}, not {_NAMES_OF_TYPES[expected]}"
                )

    def _take_argument(
        self, taking: dataclasses.Field[Any], left: dict[str, ArgumentValue]
    ) -> None:
        """Move an argument of `left` to its field; ValueError if the field has another value.

        A value of another type stays in `left`: the broker judges it.
        """
        name = taking.metadata[_ARGUMENT]
        if name not in left:
            return
        taken: ArgumentValue = None
        if _VALUE_OF_TRUE in taking.metadata:
            if same_value(left[name], taking.metadata[_VALUE_OF_TRUE]):
                taken = True
        elif type(left[name]) is taking.metadata["type"]:
            taken = left[name]
        if getattr(self, taking.name) not in (taking.default, taken):
            raise ValueError(f"{self}: {taking.name} and the argument {name} differ")
        if taken is not None:
            object.__setattr__(self, taking.name, taken)
            del left[name]

    @property
    def declared_arguments(self) -> dict[str, ArgumentValue]:
        """All arguments as they are sent to the broker."""
        table = dict(self.arguments)
        for each in argument_fields(self):
            value = getattr(self, each.name)
            # 0 is a value: a queue of at most 0 messages.
            if value is not None and value is not False:
                table[each.metadata[_ARGUMENT]] = each.metadata.get(_VALUE_OF_TRUE, value)
        return table

    def __str__(self) -> str:
        return f"{self.kind} '{self.name}'"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Declarable):
            return NotImplemented
        return self._identity() == other._identity()

    def __hash__(self) -> int:
        return hash((self.kind, self.name))

    def _identity(self) -> tuple[object, ...]:
        """Kind and fields: a `TopicExchange` equals an `Exchange` of the type topic."""
        return self.kind, *(getattr(self, each.name) for each in dataclasses.fields(self))


def argument_fields(declarable: Declarable | type[Declarable]) -> list[dataclasses.Field[Any]]:
    """The fields that are arguments."""
    return [each for each in dataclasses.fields(declarable) if _ARGUMENT in each.metadata]


def field_names_by_argument(declarable: Declarable) -> dict[str, str]:
    """The name of the field for each argument that has one."""
    return {each.metadata[_ARGUMENT]: each.name for each in argument_fields(declarable)}
