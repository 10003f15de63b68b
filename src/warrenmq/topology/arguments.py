"""Arguments of declarations: which values they may have, and when two values are the same.

The values are those that both pika and aio-pika send, and that a YAML file can hold: texts,
booleans, whole numbers of 64 bits, None, lists, and tables with text keys. pika sends no
floating-point numbers.
"""

from collections.abc import Mapping
from typing import Final, TypeAlias

ArgumentValue: TypeAlias = (
    "str | bool | int | list[ArgumentValue] | dict[str, ArgumentValue] | None"
)
Arguments: TypeAlias = Mapping[str, ArgumentValue]

# AMQP's short texts: names, routing keys and keys of tables.
SHORT_TEXT_BYTES_MAX: Final = 255
_INTEGER_MIN: Final = -(1 << 63)
_INTEGER_MAX: Final = (1 << 63) - 1


def check_short_text(text: object, what: str) -> str:
    """`text`, a name or key called `what` in errors. TypeError or ValueError if it is none."""
    if not isinstance(text, str):
        raise TypeError(f"{what} is {text!r}, not a text")
    if _utf8_length(text, what) > SHORT_TEXT_BYTES_MAX:
        raise ValueError(f"{what} is longer than {SHORT_TEXT_BYTES_MAX} bytes")
    return text


def check_name(name: object, what: str) -> None:
    """Check the name of an exchange or a queue, called `what` in errors. TypeError or ValueError.

    Brokers drop line breaks from names, so that a name with one would never be found.
    """
    text = check_short_text(name, what)
    if "\n" in text or "\r" in text:
        raise ValueError(f"{what} is {text!r}, which has a line break")


def checked_arguments(arguments: object, what: str) -> dict[str, ArgumentValue]:
    """A deep copy of the table `arguments`. TypeError or ValueError names the first bad value."""
    if not isinstance(arguments, Mapping):
        raise TypeError(f"{what} is {arguments!r}, not a table")
    return {
        check_short_text(key, f"a key of {what}"): _checked_value(value, f"{what}: {key}")
        for key, value in arguments.items()
    }


def same_value(one: ArgumentValue, other: ArgumentValue) -> bool:
    """Whether two values are the same for a broker, for which True is not 1."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same_value(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same_value, one, other))
    return type(one) is type(other) and one == other


def _checked_value(value: object, what: str) -> ArgumentValue:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        _utf8_length(value, what)
        return value
    if isinstance(value, int):
        if not _INTEGER_MIN <= value <= _INTEGER_MAX:
            raise ValueError(f"{what} is {value}, which has more than 64 bits")
        return value
    if isinstance(value, list | tuple):
        return [_checked_value(each, f"{what}[{at}]") for at, each in enumerate(value)]
    if isinstance(value, Mapping):
        return checked_arguments(value, what)
    raise TypeError(
        f"{what} is {value!r}: an argument is a text, a whole number, a boolean, a list or a table"
    )


def _utf8_length(text: str, what: str) -> int:
    try:
        return len(text.encode())
    except UnicodeEncodeError:
        raise ValueError(f"{what} is {text!r}, which has half of a surrogate pair") from None
