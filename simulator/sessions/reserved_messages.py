"""Reads what reader groups have reserved, as their clients read it, and releases it."""

from __future__ import annotations

from typing import Final

from simulator.models.messages import Violation, number_of
from simulator.models.oracle import Oracle
from simulator.simulated.admin import AdminClient
from simulator.simulated.node import VHOST, SimulatedNode
from warrenmq.admin.protocol.requests import DeleteGroup, Fetch, Fetched
from warrenmq.store.records.publish_body import decode_message
from warrenmq.store.records.record import (
    FILE_HEADER_BYTES,
    INDEX_MAGIC,
    RECORD_HEADER_BYTES,
    body_is_valid,
    crc_seed,
    file_header_is_valid,
    file_header_number,
    record_length,
)

FETCH_MESSAGES: Final = 100_000
FETCH_BYTES: Final = 1 << 20


def take_back(node: SimulatedNode, oracle: Oracle) -> dict[int, dict[int, int]]:
    """Delete all groups of the node; returns what each had: queue id -> message number -> group."""
    reserved: dict[int, dict[int, int]] = {}
    vhost = node.admin.vhost(VHOST)
    assert vhost is not None
    groups = vhost.reader_groups.by_name
    for name in sorted(groups):
        group = groups[name]
        client = AdminClient(node)
        for member in group.ordered():
            queue = member.queue
            if queue is None:
                continue
            first = member.acked
            while first < member.reserved:
                fetch = Fetch(
                    name.decode(),
                    group.epoch,
                    queue.id,
                    first,
                    member.reserved,
                    FETCH_MESSAGES,
                    FETCH_BYTES,
                )
                found = client.answer_to(fetch)
                assert isinstance(found, Fetched), found
                assert found.next > first
                of_queue = reserved.setdefault(queue.id, {})
                for number in read_numbers(found.block, oracle):
                    if number in of_queue:
                        raise Violation("twice", f"message {number} is held twice")
                    of_queue[number] = int(name.decode()[1:])
                first = found.next
        client.answer_to(DeleteGroup(name.decode()))
        client.leave()
    return reserved


def read_numbers(block: memoryview, oracle: Oracle) -> list[int]:
    """Message numbers in a block (`readers/record_block.py`); Violation on damaged content."""
    data = bytes(block)
    assert file_header_is_valid(data, INDEX_MAGIC, b"")
    seed = crc_seed(data[12:28], file_header_number(data))
    at = FILE_HEADER_BYTES
    numbers: list[int] = []
    while at < len(data):
        length = record_length(data, at, seed)
        message = decode_message(data, at + RECORD_HEADER_BYTES, at + length)
        if length < 0 or not body_is_valid(data, at, length) or message is None:
            raise Violation("corrupt", f"a block has no record at {at}")
        number = number_of(message.body)
        content = oracle.contents.get(number)
        if content is None or content.body != message.body:
            raise Violation(
                "corrupt", f"a range has {message.body[:16]!r}..., which nobody published"
            )
        numbers.append(number)
        at += length
    return numbers
