"""Reads queues through pika, and compares the messages with the files byte for byte."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pika

from demo.checks import DemoError
from demo.corpus import SourceFile
from demo.publisher import EXCHANGE

SILENCE_TIMEOUT_S = 30.0


@dataclass
class Contents:
    """The messages of a queue: known files in queue order, and names of messages that differ.

    `damaged` names the messages that are not as published; `left_behind` counts those that stayed.
    """

    files: list[SourceFile] = field(default_factory=list)
    damaged: list[str] = field(default_factory=list)
    left_behind: int = 0


def message_count(parameters: pika.ConnectionParameters, queue: str) -> int:
    """Return the number of ready messages of a queue."""
    connection = pika.BlockingConnection(parameters)
    count = _declared_count(connection.channel(), queue)
    connection.close()
    return count


def read_queue(
    parameters: pika.ConnectionParameters,
    queue: str,
    files: dict[str, SourceFile],
    advance: Callable[[], None],
    *,
    is_acking: bool,
) -> Contents:
    """Read all ready messages of a queue; without acks they all return to their places afterwards.

    `files` maps message-ids to files. DemoError when a message does not arrive in
    SILENCE_TIMEOUT_S.
    """
    contents = Contents()
    connection = pika.BlockingConnection(parameters)
    channel = connection.channel()
    expected = _declared_count(channel, queue)
    received = 0
    if expected:
        for method, properties, body in channel.consume(
            queue, inactivity_timeout=SILENCE_TIMEOUT_S
        ):
            if method is None:
                raise DemoError(
                    f"queue {queue} delivered only {received} of its {expected} messages, "
                    f"then nothing for {SILENCE_TIMEOUT_S:.0f} s"
                )
            received += 1
            file = files.get(properties.message_id or "")
            if file is None:
                contents.damaged.append(f"unknown message {properties.message_id!r}")
            else:
                contents.files.append(file)
                if not _is_as_published(file, method, properties, body):
                    contents.damaged.append(file.name)
            advance()
            if received == expected:
                if is_acking:
                    channel.basic_ack(method.delivery_tag, multiple=True)
                break
    # The close requeues unacked messages; a second connection then counts the ready ones.
    connection.close()
    contents.left_behind = message_count(parameters, queue)
    return contents


def _declared_count(channel: Any, queue: str) -> int:
    count: int = channel.queue_declare(queue, passive=True).method.message_count
    return count


def _is_as_published(file: SourceFile, method: Any, properties: Any, body: bytes) -> bool:
    return (
        body == file.path.read_bytes()
        and properties.headers == {"path": file.name, "sha256": file.sha256}
        and properties.type == "file"
        and properties.delivery_mode == pika.DeliveryMode.Persistent.value
        and method.routing_key == file.kind
        and method.exchange == EXCHANGE
    )
