"""The definitions of a node as rows, without secrets such as password hashes."""

import contextlib
import json
from typing import Any

from warrenmq.broker.definitions.metadata import Definitions
from warrenmq.offline.data_directory import DataDirectory, files_of
from warrenmq.offline.queue_copies import QueueCopy, copy_of, member_of
from warrenmq.store.disk.snapshot import NoStore, VhostSnapshot
from warrenmq.tables.columns import table_as_json
from warrenmq.vocabulary.names import name_text


def metadata_rows(data: DataDirectory, vhost: str | None) -> list[dict[str, Any]]:
    """Kind, vhost, name and attributes (JSON) of each definition.

    With `vhost` the rows are limited to that vhost and to definitions outside of all vhosts.
    """
    definitions = data.definitions
    copies = _copies(data, vhost)
    rows = [_row("vhost", item.name, item.name, {"id": item.id}) for item in definitions.vhosts]
    if place := member_of(data.path):
        rows.append(_row("cluster", None, place.get("cluster", "").encode(), place))
    for user in definitions.users:
        rows.append(_row("user", None, user.name, {"tags": user.tags, "hashing": user.hashing}))
    for permission in definitions.permissions:
        allowed = {
            "configure": permission.configure,
            "write": permission.write,
            "read": permission.read,
        }
        rows.append(_row("permission", permission.vhost, permission.user, allowed))
    for exchange in definitions.exchanges:
        described = {
            "type": name_text(exchange.type),
            "auto_delete": exchange.auto_delete,
            "internal": exchange.internal,
            "arguments": table_as_json(exchange.arguments),
        }
        rows.append(_row("exchange", exchange.vhost, exchange.name, described))
    for queue in definitions.queues:
        declared = {
            "id": queue.id,
            "durable": queue.durable,
            "auto_delete": queue.auto_delete,
            "arguments": table_as_json(queue.arguments),
        }
        if copy := copies.get((queue.vhost, queue.id)):
            declared["copy"] = copy.as_json()
        rows.append(_row("queue", queue.vhost, queue.name, declared))
    for binding in definitions.bindings:
        bound = {
            "source": name_text(binding.source),
            "destination": name_text(binding.destination),
            "destination_type": "queue" if binding.destination_is_queue else "exchange",
            "routing_key": name_text(binding.key),
            "arguments": table_as_json(binding.arguments),
        }
        rows.append(_row("binding", binding.vhost, binding.destination, bound))
    for group in definitions.reader_groups:
        opened = {"epoch": group.epoch, "pattern": group.pattern}
        rows.append(_row("reader_group", group.vhost, group.name, opened))
    for member in definitions.group_members:
        reached = {
            "queue": name_text(member.queue_name),
            "queue_id": member.queue_id,
            "acked": member.acked,
            "reserved": member.reserved,
            "is_ended": member.is_ended,
            "has_lapsed": member.has_lapsed,
        }
        rows.append(_row("reader_group_member", member.vhost, member.group, reached))
    rows.extend(_sink_rows(definitions))
    return [row for row in rows if vhost is None or row["vhost"] in (None, vhost)]


def _sink_rows(definitions: Definitions) -> list[dict[str, Any]]:
    """The rows of sinks, stages and books of receipts."""
    rows: list[dict[str, Any]] = []
    for sink in definitions.sinks:
        committed = {"batch": sink.batch, "stages": sink.stages}
        rows.append(_row("sink", sink.vhost, sink.name, committed))
    for stage in definitions.stages:
        staged = {
            "id": stage.id,
            "batch": stage.batch,
            "is_finished": stage.finished_ms != 0,
            "messages": stage.message_count,
        }
        rows.append(_row("stage", stage.vhost, stage.sink, staged))
    for book in definitions.receipts:
        received = {
            "id": book.id,
            "queue_id": book.queue_id,
            "floor": book.floor,
            "runs": book.runs,
        }
        rows.append(_row("receipts", book.vhost, book.sink, received))
    return rows


def _copies(data: DataDirectory, vhost: str | None) -> dict[tuple[bytes, int], QueueCopy]:
    """The copies of mirrored queues, by vhost and queue id."""
    found: dict[tuple[bytes, int], QueueCopy] = {}
    for each in data.vhosts:
        definition = each.definition
        if definition is None or vhost not in (None, each.name):
            continue
        with files_of(each) as files, contextlib.suppress(NoStore):
            snapshot = VhostSnapshot(files)
            for queue in data.definitions.queues:
                if queue.vhost == definition.name:
                    copy = copy_of(snapshot, queue.id, queue.birth)
                    if copy is not None:
                        found[queue.vhost, queue.id] = copy
    return found


def _row(kind: str, vhost: bytes | None, name: bytes, attributes: dict[str, Any]) -> dict[str, Any]:
    return {
        "kind": kind,
        "vhost": None if vhost is None else name_text(vhost),
        "name": name_text(name),
        "json": json.dumps(attributes, sort_keys=True),
    }
