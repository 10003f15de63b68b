"""Opens one vhost: reads its store, declares its definitions and gives its queues their messages.

A node on a real disk and a simulated one run the same code: it knows the disk only by `files`.
"""

import logging
import secrets
import time
from collections.abc import Callable

from warrenmq.broker.broker import Broker
from warrenmq.broker.definitions.limits import VHOST_LIMITS
from warrenmq.broker.definitions.metadata import Definitions, PutVhost
from warrenmq.broker.vhost.pauses import QUEUE_PAUSE
from warrenmq.broker.vhost.vhost import Vhost
from warrenmq.store.disk.files import (
    JOURNAL_DIRECTORY,
    keep_orphans,
    load_store_id,
    quarantine,
    set_aside_strange,
)
from warrenmq.store.disk.orphans import embed_contents
from warrenmq.store.disk.store_reader import StoreReport, clear_queues, read_store
from warrenmq.store.file_system import FileSystem
from warrenmq.store.model.layout import QUEUES_NAME
from warrenmq.store.recovery import Damage
from warrenmq.store.settings import StoreSettings
from warrenmq.wire.errors import AmqpError

logger = logging.getLogger("warren.startup")


def open_vhost(
    broker: Broker,
    put_vhost: PutVhost,
    files: FileSystem,
    definitions: Definitions,
    settings: StoreSettings,
    now_ms: int,
    random_bytes: Callable[[int], bytes] = secrets.token_bytes,
) -> tuple[Vhost, StoreReport]:
    """Add the vhost, whose directory is the root of `files`, to `broker`.

    Raises OSError when the disk reports one. `random_bytes(size)` makes the id of a new store.
    """
    strange = set_aside_strange(files)
    files.make_directories(JOURNAL_DIRECTORY)
    started = time.monotonic()
    store, replay, report = read_store(files, load_store_id(files, random_bytes), settings)
    report.quarantined[:0] = strange
    vhost = Vhost(broker, put_vhost.name, put_vhost.id, store)
    vhost.definition = put_vhost
    broker.vhosts[put_vhost.name] = vhost
    unusable_ids = _restore_definitions(vhost, definitions, now_ms)
    broker.reserve_queue_ids(max(replay.queues, default=0))
    # Unknown ids below this one are those of deleted queues.
    known_below = 1 if definitions.has_lost_ids else definitions.next_queue_id
    orphans = vhost.restore_messages(replay, known_below, unusable_ids, now_ms)
    for queue_id in unusable_ids:
        # Move the queue's files aside and keep them: only the queue's definition is damaged.
        if files.exists(f"{QUEUES_NAME}/{queue_id}"):
            embed_contents(files, store.store_id, queue_id)
            report.quarantined.append(quarantine(files, f"{QUEUES_NAME}/{queue_id}"))
    clear_queues(files, store, known_below, report)

    name = put_vhost.name.decode("utf-8", "replace")
    messages = sum(queue.ready_count + queue.unacked_count for queue in vhost.queues.values())
    logger.info(
        "vhost '%s': %d queues, %d messages; read %d bytes, %d journal files behind checkpoint %d, in %.2f s",
        name,
        len(vhost.queues),
        messages,
        report.bytes_read,
        report.journal_files,
        report.generation,
        time.monotonic() - started,
    )
    _log_report(name, report)
    vhost.losses.report_all()
    for orphan in orphans:
        file_name = keep_orphans(files, orphan, store.store_id)
        logger.error(
            "vhost '%s': %d messages of queue id %d, which no usable definition names, are in lost+found: %s",
            name,
            len(orphan.positions),
            orphan.ledger.queue_id,
            file_name,
        )
    return vhost, report


def _log_report(name: str, report: StoreReport) -> None:
    for line in report.quarantined:
        logger.warning(
            "vhost '%s': not a usable file of this vhost, moved to lost+found: %s", name, line
        )
    for line in report.unfinished:
        logger.info(
            "vhost '%s': a file that was never finished, moved to lost+found: %s", name, line
        )
    stretches: dict[tuple[int, str], list[Damage]] = {}
    for damage in report.damage:
        stretches.setdefault((damage.file_number, damage.reason), []).append(damage)
    for (number, reason), found in stretches.items():
        logger.error(
            "vhost '%s': journal file %d is damaged from byte %d to %d (%s, stretches: %d); copied to lost+found",
            name,
            number,
            min(damage.start for damage in found),
            max(damage.end for damage in found),
            reason,
            len(found),
        )
    for torn in report.torn:
        logger.info(
            "vhost '%s': journal file %d ends in %d bytes of an unfinished write; copied to lost+found unless all are zero",
            name,
            torn.file_number,
            torn.end - torn.start,
        )
    for path in report.damaged_headers:
        logger.error("vhost '%s': the header of %s is damaged; its records are used", name, path)
    for line in report.missing_journal:
        logger.error(
            "vhost '%s': a journal file is missing: %s; its messages that no index has are lost",
            name,
            line,
        )
    if report.kept_references > 0:
        logger.warning(
            "vhost '%s': damage hides whether %d references to contents were released; the contents are kept",
            name,
            report.kept_references,
        )
    for line in report.missing:
        logger.error("vhost '%s': missing: %s", name, line)
    if report.missing_contents > 0:
        logger.error(
            "vhost '%s': %d messages have lost their content", name, report.missing_contents
        )
    if report.is_rebuilt:
        logger.error(
            "vhost '%s': no usable checkpoint; the indexes were read as a whole, %d damaged stretches in them. "
            "Messages acked since they were written may be delivered again, and epochs of queues that only the checkpoint "
            "knew are lost",
            name,
            report.index_damage,
        )


def _restore_definitions(vhost: Vhost, definitions: Definitions, now_ms: int) -> set[int]:
    """Declare the definitions; returns the ids of queues whose definition is damaged beyond use."""
    router = vhost.router
    unusable_ids = set(definitions.unusable_ids)
    vhost.policies.load(vhost.name, definitions.parameters)
    for parameter in definitions.parameters:
        if parameter.vhost == vhost.name and parameter.component in (VHOST_LIMITS, QUEUE_PAUSE):
            vhost.put_parameter(parameter.component, parameter.name, parameter.value)
    for exchange in definitions.exchanges:
        if exchange.vhost == vhost.name:
            try:
                restored = router.declare_exchange(
                    exchange.name,
                    exchange.type,
                    True,
                    exchange.auto_delete,
                    exchange.internal,
                    exchange.arguments,
                )
                vhost.policies.on_exchange(restored)
            except AmqpError as error:
                logger.error("skipped the definition of exchange %r: %s", exchange.name, error.text)
    for queue in definitions.queues:
        if queue.vhost == vhost.name:
            try:
                vhost.restore_queue(queue, now_ms)
            except AmqpError as error:
                unusable_ids.add(queue.id)
                logger.error("skipped the definition of queue %r: %s", queue.name, error.text)
    for part in definitions.queue_parts:
        is_of_unusable = part.owner in unusable_ids
        if part.vhost == vhost.name and (is_of_unusable or not vhost.restore_part(part)):
            unusable_ids.add(part.id)
    vhost.staging.restore(definitions, now_ms)
    vhost.receipts.restore(definitions.receipts)
    for binding in definitions.bindings:
        if binding.vhost != vhost.name:
            continue
        source = router.exchanges.get(binding.source)
        names = router.queues if binding.destination_is_queue else router.exchanges
        destination = names.get(binding.destination)
        if source is None or destination is None:
            logger.warning(
                "skipped a binding of %r: its source or destination does not exist", binding.source
            )
            continue
        try:
            router.restore_binding(source, destination, binding.key, binding.arguments)
        except AmqpError as error:
            logger.error("skipped a binding of %r: %s", binding.source, error.text)
    return unusable_ids
