"""The firehose: copies of all messages of a traced vhost, published to `amq.rabbitmq.trace`.

A message that arrives is copied with the key `publish.EXCHANGE`, one that leaves to a client with
`deliver.QUEUE`. The copy has the body, and headers that describe the message and its client, as in
RabbitMQ. Messages of the trace exchange itself are not copied.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from warrenmq.broker.vhost.arrival import arrive
from warrenmq.broker.vhost.vhost import Vhost
from warrenmq.queues.message_taker import MessageTaker
from warrenmq.queues.settings import NO_LIMIT
from warrenmq.store.model.message import Message
from warrenmq.wire.field_table import Field, decode_table, encode_table
from warrenmq.wire.field_types import (
    TAG_ARRAY,
    TAG_LONGSTR,
    TAG_SIGNED_INT,
    TAG_TABLE,
    TAG_TIMESTAMP,
)
from warrenmq.wire.properties import Properties, decode_properties

TRACE_EXCHANGE: Final = b"amq.rabbitmq.trace"
# Longest routing key (bytes).
_KEY_BYTES_MAX: Final = 255


class ChannelTracer:
    """Copies the messages of one channel. `connection`: the connection's name for people."""

    def __init__(
        self, vhost: Vhost, node: bytes, connection: bytes, channel: i64, user: bytes
    ) -> None:
        self._vhost: Vhost = vhost
        self._common: dict[str, Field] = {
            "node": Field(TAG_LONGSTR, node),
            "vhost": Field(TAG_LONGSTR, vhost.name),
            "connection": Field(TAG_LONGSTR, connection),
            "channel": Field(TAG_SIGNED_INT, channel),
            "user": Field(TAG_LONGSTR, user),
        }

    def published(
        self, message: Message, routing_keys: list[bytes], queues: list[MessageTaker], now_ms: i64
    ) -> None:
        """Copy a message that the channel publishes, before it is in `queues`."""
        headers = self._headers(message, routing_keys)
        names = [Field(TAG_LONGSTR, queue.name) for queue in queues]
        headers["routed_queues"] = Field(TAG_ARRAY, names)
        self._copy(message, b"publish." + message.exchange(), headers, now_ms)

    def delivered(self, message: Message, queue: bytes, redelivered: bool, now_ms: i64) -> None:
        """Copy a message that the channel's client gets from a queue."""
        headers = self._headers(message, [message.routing_key()])
        headers["redelivered"] = Field(TAG_SIGNED_INT, 1 if redelivered else 0)
        self._copy(message, b"deliver." + queue, headers, now_ms)

    def _headers(self, message: Message, routing_keys: list[bytes]) -> dict[str, Field]:
        keys = [Field(TAG_LONGSTR, key) for key in routing_keys]
        headers = {
            "exchange_name": Field(TAG_LONGSTR, message.exchange()),
            "routing_keys": Field(TAG_ARRAY, keys),
            "properties": Field(TAG_TABLE, properties_table(message.properties)),
        }
        headers.update(self._common)
        return headers

    def _copy(self, message: Message, key: bytes, headers: dict[str, Field], now_ms: i64) -> None:
        vhost = self._vhost
        exchange = vhost.router.exchanges.get(TRACE_EXCHANGE)
        if exchange is None or message.exchange() == TRACE_EXCHANGE:
            return
        key = key[:_KEY_BYTES_MAX]
        queues = vhost.route(exchange, [key], b"")
        if len(queues) == 0:
            return
        address = bytes([len(TRACE_EXCHANGE)]) + TRACE_EXCHANGE + bytes([len(key)]) + key
        properties = Properties(headers=encode_table(headers)).encode()
        arrive(
            queues,
            Message(address, properties, message.body, False, now_ms),
            NO_LIMIT,
            0,
            now_ms,
            False,
        )


def properties_table(raw: bytes) -> dict[str, Field]:
    """The properties in the block `raw` as a table; absent ones are left out."""
    properties = decode_properties(raw)
    table: dict[str, Field] = {}
    texts = [
        ("content_type", properties.content_type),
        ("content_encoding", properties.content_encoding),
        ("correlation_id", properties.correlation_id),
        ("reply_to", properties.reply_to),
        ("expiration", properties.expiration),
        ("message_id", properties.message_id),
        ("type", properties.type),
        ("user_id", properties.user_id),
        ("app_id", properties.app_id),
        ("cluster_id", properties.cluster_id),
    ]
    for name, text in texts:
        if text is not None:
            table[name] = Field(TAG_LONGSTR, text)
    headers = properties.headers
    if headers is not None:
        table["headers"] = Field(TAG_TABLE, decode_table(headers))
    for name, number in [
        ("delivery_mode", properties.delivery_mode),
        ("priority", properties.priority),
    ]:
        if number is not None:
            table[name] = Field(TAG_SIGNED_INT, number)
    if properties.timestamp is not None:
        table["timestamp"] = Field(TAG_TIMESTAMP, properties.timestamp)
    return table
