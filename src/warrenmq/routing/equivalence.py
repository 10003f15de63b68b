"""Equivalence checks for a repeated declaration of an exchange or queue (protocol 5.3, 5.4).

A declaration of an existing exchange or queue must equal the first one, or the client gets a 406
that names the difference. A *resource* is the name in error texts: `queue 'q' in vhost '/'`. The
errors name no method; the code that handles one fills in its ids.
"""

from collections.abc import Sequence

from warrenmq.routing.exchange import ALTERNATE_EXCHANGE, Exchange
from warrenmq.routing.field_values import erlang_value, values_equivalent
from warrenmq.wire.errors import PRECONDITION_FAILED, ChannelException
from warrenmq.wire.field_table import Field, decode_table
from warrenmq.wire.field_types import TAG_LONGSTR, TAG_VOID, type_name


def resource_text(kind: str, name: bytes, vhost: bytes) -> str:
    """The text `exchange 'x' in vhost '/'`; `kind` is "exchange" or "queue"."""
    return (
        f"{kind} '{name.decode('utf-8', 'replace')}' in vhost '{vhost.decode('utf-8', 'replace')}'"
    )


def inequivalent(key: str, resource: str, received: str, current: str) -> ChannelException:
    """The 406 for `key`.

    `received` and `current` are complete phrases: `'true'`, `none`, `the value ...`.
    """
    return ChannelException(
        PRECONDITION_FAILED,
        f"inequivalent arg '{key}' for {resource}: received {received} but current is {current}",
    )


def assert_equivalent_flag(key: str, resource: str, received: bool, current: bool) -> None:
    """Raise ChannelException 406 unless a flag such as `durable` is equal in both declarations."""
    if received != current:
        raise inequivalent(key, resource, _flag_text(received), _flag_text(current))


def assert_equivalent_arguments(
    keys: Sequence[str], resource: str, received: dict[str, Field], current: dict[str, Field]
) -> None:
    """Raise ChannelException 406 for the first of `keys` that is on one side only, or differs."""
    for key in keys:
        one = received.get(key)
        other = current.get(key)
        if one is None and other is None:
            continue
        if one is None or other is None:
            raise inequivalent(key, resource, _presence_text(one), _presence_text(other))
        if not values_equivalent(one, other):
            raise inequivalent(key, resource, _quoted_text(one), _quoted_text(other))


def assert_equivalent_exchange(
    exchange: Exchange,
    vhost: bytes,
    type: bytes,
    durable: bool,
    auto_delete: bool,
    internal: bool,
    arguments: bytes,
) -> None:
    """Raise ChannelException 406 unless this declaration equals that of `exchange`.

    Of the arguments, only the alternate exchange counts.
    """
    resource = resource_text("exchange", exchange.name, vhost)
    if type != exchange.type:
        raise inequivalent("type", resource, _type_text(type), _type_text(exchange.type))
    assert_equivalent_flag("durable", resource, durable, exchange.durable)
    assert_equivalent_flag("auto_delete", resource, auto_delete, exchange.auto_delete)
    assert_equivalent_flag("internal", resource, internal, exchange.internal)
    if arguments != exchange.arguments:
        assert_equivalent_arguments(
            [ALTERNATE_EXCHANGE],
            resource,
            decode_table(arguments),
            decode_table(exchange.arguments),
        )


def name_argument(arguments: dict[str, Field], key: str, resource: str) -> bytes | None:
    """The name that the argument `key` gives, None without it; ChannelException 406 for no name."""
    field = arguments.get(key)
    if field is None:
        return None
    name = field.value
    if field.tag != TAG_LONGSTR or not isinstance(name, bytes):
        raise ChannelException(
            PRECONDITION_FAILED,
            f"invalid type '{type_name(field.tag)}' for arg '{key}' in {resource}",
        )
    return name


def _flag_text(value: bool) -> str:
    return "'true'" if value else "'false'"


def _type_text(type: bytes) -> str:
    # A type is an atom in RabbitMQ, and Erlang quotes an atom with a dash.
    text = type.decode("utf-8", "replace")
    return f"''{text}''" if "-" in text else f"'{text}'"


def _presence_text(field: Field | None) -> str:
    if field is None:
        return "none"
    return f"the value '{_value_text(field)}' of type '{type_name(field.tag)}'"


def _quoted_text(field: Field) -> str:
    # A void's value is the atom that stands for no value in Erlang.
    return "none" if field.tag == TAG_VOID else f"'{_value_text(field)}'"


def _value_text(field: Field) -> str:
    value = field.value
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else erlang_value(field)
