"""`restore` into a running node: declares a backup's definitions and fills its queues.

First the files are compared with the manifests, and the definitions with those of the vhost. Then
the missing definitions are declared, the messages are staged for their queues, moved there by the
broker, each once (staged_publisher.py), read back and compared. Bindings come last, so that no
other publisher's message gets between the restored messages of a new queue.
"""

import itertools
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from warrenmq.admin.client.client import RETRY_TIMEOUT_S, AdminClient
from warrenmq.admin.protocol.figures import ListQueues, QueueList
from warrenmq.admin.protocol.sinks import OpenStage, StageOpened
from warrenmq.broker.definitions.metadata import Definitions
from warrenmq.offline.data_directory import level_names
from warrenmq.pipeline.backups.manifest import SEQ_END, QueueEntry, read_topology
from warrenmq.pipeline.backups.topology import definitions_of
from warrenmq.pipeline.broker import address_of, as_job_error, must_be_reachable, reach
from warrenmq.pipeline.engine import Engine, require_engine, sharing_for
from warrenmq.pipeline.progress import Progress, Silent, Step
from warrenmq.pipeline.result import FOUND_EXIT, OK_EXIT, JobError, JobResult
from warrenmq.pipeline.staged_publisher import (
    BATCH_BYTES,
    BATCH_MESSAGES,
    WAIT_MS,
    StagedPublisher,
    pieces,
)
from warrenmq.pipeline.tasks import TaskRunner
from warrenmq.spark.local.java import require_packages

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from warrenmq.pipeline.backups.chain import Chain

_PURPOSE: Final = "warren restore"


@dataclass
class QueueDifference:
    """The differences between a queue and the backup.

    `missing` messages of the backup are not in the queue, as when consumers took them; `others` are
    only in the queue. `is_in_order`: the messages of the backup have its order.
    """

    queue: str
    missing: int
    others: int
    is_in_order: bool


@dataclass
class LiveRestoreResult(JobResult):
    """The figures of a restore; earlier runs restored `restored_before` of the `messages`.

    `delayed` messages of the backup are left out: they wait at delayed exchanges.
    """

    # A path, or a URI.
    backup: str
    id: str
    vhost: str
    sink: str
    chain: int
    queues: int
    bindings: int
    declared_exchanges: int
    declared_queues: int
    messages: int
    restored: int
    restored_before: int
    delayed: int = 0
    differences: list[QueueDifference] = field(default_factory=list)

    @property
    def exit_code(self) -> int:
        """1 when the messages read back differ from the backup, or delayed ones are left out."""
        return FOUND_EXIT if self.differences or self.delayed else OK_EXIT


def restore_live(
    backup: str | Path,
    uri: str,
    *,
    bases: Sequence[str | Path] = (),
    retry_timeout_s: float = RETRY_TIMEOUT_S,
    spark: "SparkSession | None" = None,
    master: str | None = None,
    engine: Engine = "auto",
    progress: Progress | None = None,
) -> LiveRestoreResult:
    """Put the messages of a vhost's backup into the vhost at `uri`, as an administrator.

    The backup, and those it is based on, are named by paths or URIs (places.py).
    Missing exchanges, queues and bindings are declared. Delayed messages are left out. Queues that
    get messages must be empty. Each message arrives once, in its order, even when a killed run is
    resumed by another call. A restore waits up to `retry_timeout_s` seconds each time the node does
    not answer. Raises ToolError and JobError. An error before the first message leaves the node as
    it was, except for definitions that were missing and are declared.
    """
    require_engine(engine, master, spark)
    # The sink that publishes belongs to the data source.
    require_packages()
    from warrenmq.pipeline.backups.chain import open_chain

    chain = open_chain(backup, bases)
    definitions = definitions_of(read_topology(chain.places[-1], chain.last))
    vhost = address_of(uri).vhost
    must_be_reachable(uri, _PURPOSE, retry_timeout_s)
    progress = progress or Silent()
    with sharing_for("restore", engine, master, spark, progress) as sharing:
        tasks = TaskRunner(sharing, progress)
        return _LiveRestore(chain, definitions, uri, vhost, retry_timeout_s, tasks).run()


@dataclass
class _LiveRestore:
    chain: "Chain"
    definitions: Definitions
    uri: str = field(repr=False)
    vhost: str
    retry_timeout_s: float
    tasks: TaskRunner

    def __post_init__(self) -> None:
        from warrenmq.spark.sinks.options import SinkOptions

        self.sink = f"restore-{self.chain.last.id}"
        retry_ms = round(self.retry_timeout_s * 1000)
        options = SinkOptions(self.uri, None, None, self.sink, True, True, WAIT_MS, retry_ms)
        self.publisher = StagedPublisher(options, self.sink)
        self.names = level_names(self.definitions, self.definitions.vhosts[0].name)
        # The queues, and the levels of priority queues, that have messages.
        self.queues = [
            queue for queue in self.chain.last.queues if queue.messages and queue.id in self.names
        ]
        self.messages = sum(queue.messages for queue in self.queues)

    def run(self) -> LiveRestoreResult:
        """Check, declare, publish, compare and bind; see the module."""
        from warrenmq.pipeline.backups.live_definitions import LiveDefinitions

        last = self.chain.last
        live = LiveDefinitions(self.uri, self.definitions, self.retry_timeout_s)
        with tempfile.TemporaryDirectory(prefix="warren-restore-") as scratch:
            try:
                self._check_files(Path(scratch))
                self._must_be_allowed()
                missing = live.compare()
                before = self.publisher.published() or 0
                if before == 0:
                    self._must_be_empty()
                live.declare(missing)
                self._publish(before)
                differences = self._compare(Path(scratch))
                bindings = live.bind()
            finally:
                live.close()
        return LiveRestoreResult(
            backup=str(self.chain.places[-1]),
            id=last.id,
            vhost=self.vhost,
            sink=self.sink,
            chain=len(self.chain.manifests),
            queues=len(self.definitions.queues),
            bindings=bindings,
            declared_exchanges=len(missing.exchanges),
            declared_queues=len(missing.queues),
            messages=self.messages,
            restored=self.messages - before,
            restored_before=before,
            delayed=last.messages - self.messages,
            differences=differences,
        )

    def _check_files(self, scratch: Path) -> None:
        from warrenmq.pipeline.backups.chain import damage_in

        defined = {part.id for part in self.definitions.queue_parts} | self.names.keys()
        for queue in self.chain.last.queues:
            if queue.id not in defined:
                raise JobError(
                    f"queue id {queue.id} ('{queue.name}') of the backup is not in its definitions"
                )
        damage = damage_in(self.chain, self.tasks, scratch / "check")
        if damage:
            raise JobError(damage)

    def _must_be_allowed(self) -> None:
        """JobError when the user may not put messages into queues directly."""
        # Open a stage and leave it empty: the broker drops it when this client closes.
        with as_job_error(), self._client() as client:
            client.request(OpenStage(self.sink, 0, b"-"), StageOpened)

    def _must_be_empty(self) -> None:
        """JobError when a queue to fill is not empty: its messages could not be distinguished."""
        wanted = {self.names[queue.id].decode("utf-8", "replace") for queue in self.queues}
        found = []
        with self._client() as client:
            after = 0
            while True:
                queues = client.request(ListQueues(after), QueueList)
                found += [
                    queue
                    for queue in queues.queues
                    if queue.name in wanted and queue.ready + queue.unacked
                ]
                if queues.is_last:
                    break
                after = queues.queues[-1].id
        if found:
            more = f", and {len(found) - 1} more are not" if len(found) > 1 else ""
            raise JobError(
                f"queue '{found[0].name}' in vhost '{self.vhost}' is not empty "
                f"({found[0].ready + found[0].unacked} messages){more}: restore into empty queues"
            )

    def _client(self) -> AdminClient:
        return reach(self.uri, _PURPOSE, self.retry_timeout_s)

    def _publish(self, before: int) -> None:
        """Publish all rows after the first `before`, queue by queue."""
        total = self.messages
        done = 0
        for queue in self.queues:
            end = done + queue.messages
            if end > before:
                left_out = max(before - done, 0)
                at = done + left_out
                for rows in pieces(self._rows(queue, left_out), BATCH_MESSAGES, BATCH_BYTES):
                    self.tasks.progress.show(Step("restore", at, total))
                    at += sum([batch.num_rows for batch in rows])
                    self.publisher.publish(rows, at, self.names[queue.id])
                if at != end:
                    raise JobError(
                        f"the backup has {queue.messages + at - end} messages of queue '{queue.name}'; "
                        f"its manifest says {queue.messages}"
                    )
            done = end
        if total:
            self.tasks.progress.show(Step("waiting for the queues", total, total))
            self.publisher.await_queues(total)

    def _rows(self, queue: QueueEntry, left_out: int) -> Iterator[Any]:
        """Yield the messages of a queue after the first `left_out`, as record batches."""
        from warrenmq.pipeline.backups.chain import rows_of_queue

        firsts = {
            rows.first_seq
            for file in self.chain.files()
            for rows in file.file.queues
            if rows.queue_id == queue.id
        }
        bounds = [*sorted(firsts), SEQ_END]
        for first, end in itertools.pairwise(bounds):
            for batch in rows_of_queue(self.chain, queue.id, first, end):
                skipped = min(left_out, batch.num_rows)
                left_out -= skipped
                if skipped < batch.num_rows:
                    yield batch.slice(skipped)

    def _compare(self, scratch: Path) -> list[QueueDifference]:
        """Compare each queue with the backup; returns the queues that differ."""
        from warrenmq.pipeline.backups.live_comparison import CompareTask, Comparison, compare_queue

        priorities = {part.id: part.number for part in self.definitions.queue_parts}
        levels: dict[bytes, dict[int, int]] = {}
        for queue in self.queues:
            known = levels.setdefault(self.names[queue.id], {})
            known[priorities.get(queue.id, 0)] = queue.id
        tasks = {
            str(number): CompareTask(self.chain, self.uri, name, known)
            for number, (name, known) in enumerate(levels.items())
        }
        results = scratch / "compare"
        found = self.tasks.run(results, tasks, compare_queue, Comparison, "compare the queues")
        differences = []
        for number, name in enumerate(levels):
            one = found[str(number)]
            if one.missing or one.others or not one.is_in_order:
                text = name.decode("utf-8", "replace")
                differences.append(QueueDifference(text, one.missing, one.others, one.is_in_order))
        return differences
