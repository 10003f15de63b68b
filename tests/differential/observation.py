"""What a client sees of one step, in a form that is equal for two brokers that do the same.

Names that a broker makes are numbered in the order of their appearance, times of `x-death` become
one word, and blanks of reply texts are left out, since RabbitMQ breaks lines where it prints Erlang
terms.
"""

import re
import time
from functools import lru_cache

from tests.support.brokers.amqp_peer import Message
from warrenmq.wire.field_table import Field, decode_table
from warrenmq.wire.method import Method
from warrenmq.wire.methods import (
    BasicCancelOk,
    BasicConsumeOk,
    BasicGetEmpty,
    BasicGetOk,
    BasicReturn,
    ChannelClose,
    ConnectionClose,
    QueueDeclareOk,
    QueueDeleteOk,
    QueuePurgeOk,
)
from warrenmq.wire.properties import Properties, decode_properties

MADE_NAME = re.compile(r"amq\.(gen|ctag)-[A-Za-z0-9_-]{22}")
# Times (s) of `x-death` that are as old as a sequence may be.
RECENT_S = 3600

_FIELDS: dict[type[Method], tuple[str, ...]] = {
    QueueDeclareOk: ("queue", "message_count", "consumer_count"),
    QueueDeleteOk: ("message_count",),
    QueuePurgeOk: ("message_count",),
    BasicConsumeOk: ("consumer_tag",),
    BasicCancelOk: ("consumer_tag",),
    BasicGetEmpty: (),
    BasicGetOk: ("delivery_tag", "redelivered", "exchange", "routing_key", "message_count"),
    BasicReturn: ("reply_code", "reply_text", "exchange", "routing_key"),
    ChannelClose: ("reply_code", "reply_text", "failing_class_id", "failing_method_id"),
    ConnectionClose: ("reply_code", "reply_text", "failing_class_id", "failing_method_id"),
}
_PROPERTIES = (
    "content_type", "content_encoding", "delivery_mode", "priority", "correlation_id", "reply_to", "expiration",
    "message_id", "timestamp", "type", "user_id", "app_id", "cluster_id",
)  # fmt: skip


class MadeNames:
    """Names that one broker has made, and their aliases, which are the same for each broker."""

    def __init__(self) -> None:
        self._aliases: dict[str, str] = {}
        self._names: dict[str, str] = {}

    def alias(self, text: str) -> str:
        """`text` with the alias of each name that the broker has made."""
        return MADE_NAME.sub(self._alias, text) if "amq." in text else text

    def _alias(self, match: re.Match[str]) -> str:
        name = match.group()
        if name not in self._aliases:
            alias = f"amq.{match.group(1)}-#{len(self._aliases) + 1}"
            self._aliases[name], self._names[alias] = alias, name
        return self._aliases[name]

    def name(self, text: str) -> str:
        """The name behind an alias; another text stays."""
        return self._names.get(text, text)


def show_item(item: Method | Message, names: MadeNames, now_s: float) -> str:
    """A reply or an event as text, with its content; `now_s`: the time by the broker's clock."""
    if isinstance(item, Message):
        shown = show_method(item.method, names)
        return f"{shown} {names.alias(show_content(item, now_s))}"
    return show_method(item, names)


def show_method(method: Method, names: MadeNames) -> str:
    """A method that a broker sends, without delivery tags of deliveries."""
    values = []
    for field in _FIELDS.get(type(method), ()):
        value = getattr(method, field)
        if isinstance(value, bytes):
            value = value.decode("utf-8", "backslashreplace")
            if field == "reply_text":
                value = "".join(value.split())
            value = repr(names.alias(value))
        values.append(f"{value}")
    return f"{type(method).__name__}({', '.join(values)})"


def show_content(message: Message, now_s: float) -> str:
    """Properties and body of a message."""
    body = message.body if len(message.body) < 40 else message.body[:20] + b"..."
    return f"{_show_properties(message.raw, int(now_s / RECENT_S))} {len(message.body)} {body!r}"


@lru_cache(maxsize=1000)
def _show_properties(raw: bytes, hour: int) -> str:
    properties = decode_properties(raw)
    shown = [
        f"{name}={value!r}"
        for name in _PROPERTIES
        if (value := getattr(properties, name)) is not None
    ]
    return " ".join([*shown, _show_headers(properties, hour)])


def _show_headers(properties: Properties, hour: int) -> str:
    if properties.headers is None:
        return ""
    return _show_table(decode_table(properties.headers), hour)


def _show_table(table: dict[str, Field], hour: int) -> str:
    return "{" + ", ".join(f"{key}: {_show_field(key, table[key], hour)}" for key in table) + "}"


def _show_field(key: str, field: Field, hour: int) -> str:
    value = field.value
    if isinstance(value, dict):
        shown = _show_table(value, hour)
    elif isinstance(value, list):
        shown = "[" + ", ".join(_show_field("", inner, hour) for inner in value) + "]"
    elif key == "time" and isinstance(value, int) and abs(value // RECENT_S - hour) <= 1:
        shown = "recent"
    else:
        shown = repr(value)
    return chr(field.tag) + shown


def now_s() -> float:
    """The time of a broker that lives in real time."""
    return time.time()
