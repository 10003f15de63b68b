"""A cluster whose workload has mirrored queues of all kinds, with consumers at each node."""

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from simulator.workload.settings import WorkloadSettings
from tests.cluster.mirrored.mirrored_cluster import PATTERN, POLICY, MirroredCluster
from tests.cluster.nodes.real_cluster import CLIENT
from tests.support.awaiting import eventually
from tests.support.brokers.amqp_frames import table
from tests.support.cluster.workload_process import RecordedRun

# One queue has two copies only.
NARROW_KIND = "lazy"
NARROW_POLICY = '{"ha-mode":"exactly","ha-params":2,"ha-sync-mode":"automatic"}'
KINDS = (
    "classic", "lazy", "priority", "quorum", "single", "stock", "single-stock", "rejected",
    "polled",
)  # fmt: skip
# Messages a second of each publisher.
RATE = 100
CONSUMERS = 3


class PartitionCluster(MirroredCluster):
    """See the module."""

    @contextlib.contextmanager
    def kinds_workload(
        self, directory: Path, kinds: Sequence[str] = KINDS, rate: int = RATE, seed: int = 1
    ) -> Iterator[tuple[RecordedRun, WorkloadSettings]]:
        """A workload with a queue of each kind, on all nodes and in sync, with full stocks."""
        directory.mkdir(parents=True, exist_ok=True)
        settings = WorkloadSettings(
            uris=tuple(self.uri(name) for name in self.names),
            history=directory / "history.jsonl",
            queues=len(kinds),
            kinds=tuple(kinds),
        )
        self.set_policies(settings)
        for number, queue in enumerate(settings.drained_queues):
            self.declare(settings, queue, self.names[number % len(self.names)])
        options = ["--queues", str(len(kinds)), "--idle-queues", "0", "--rate", str(rate)]
        options += ["--publishers", "2" if settings.numbers(has_stock=False) else "0"]
        options += ["--consumers", str(CONSUMERS), "--seed", str(seed)]
        options += [word for kind in kinds for word in ("--kind", kind)]
        with RecordedRun(directory, settings.uris, options, self.network.prefix(CLIENT)) as run:
            stock = sum(settings.kind(queue).stock for queue in settings.queue_names)
            run.await_confirms(stock)
            self.await_in_sync()
            yield run, settings

    def set_policies(self, settings: WorkloadSettings) -> None:
        """Mirror all queues on all nodes, but for one."""
        narrow = [
            queue
            for queue, kind in zip(settings.queue_names, settings.kinds, strict=True)
            if kind == NARROW_KIND
        ]
        policies = [("mirrored", PATTERN, POLICY, 0)]
        policies += [("narrow", f"^{queue}$", NARROW_POLICY, 1) for queue in narrow]
        for name, pattern, definition, priority in policies:
            printed = self[self.names[0]].ctl(
                "set_policy", "--priority", str(priority), name, pattern, definition
            )
            assert printed.code == 0, printed

    def declare(self, settings: WorkloadSettings, queue: str, name: str) -> None:
        """Declare a queue of the workload through a node."""
        with self.client(name) as client:
            arguments = table(**settings.arguments(queue))
            client.declare(queue.encode(), durable=True, arguments=arguments)

    def await_in_sync_of(self, queue: str) -> None:
        """Return when a queue has a copy in sync on each node."""
        everywhere = set(self.names)

        def is_in_sync() -> bool:
            group = self.groups(queue).get(queue)
            return group is not None and {self._short(c.node) for c in group.sync} == everywhere

        eventually(is_in_sync, f"{queue} is in sync everywhere", 0.1)

    def lacking(self) -> list[str]:
        """What keeps copies from being all in sync, a line for each queue."""
        lines = []
        for queue, group in sorted(self.groups().items()):
            living = sorted(self._short(member.id.node) for member in group.living)
            synced = sorted(self._short(copy.node) for copy in group.sync)
            if group.is_down or len(living) < 2 or living != synced:
                lines.append(
                    f"{queue}: master {group.master}, living {living}, in sync {synced},"
                    f" version {group.version}: {group.reason}"
                )
        return lines
