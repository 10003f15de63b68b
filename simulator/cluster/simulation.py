"""Runs one history of a cluster; `run_cluster_seeds` runs many.

In the end all faults are over. The cluster must come to rest in a bounded time, with one topology
on all nodes, every method and publish answered, and nothing held by clients that are gone. Then
every queue is drained, and the checker judges what clients have sent and received.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Final, TypeVar

from simulator.cluster.clients import (
    ClusterClient,
    Consumer,
    Publisher,
    TxPublisher,
    life_of,
)
from simulator.cluster.endings.mirror_rest import report_copies
from simulator.cluster.endings.outage import run_outage
from simulator.cluster.endings.partings import run_parting
from simulator.cluster.endings.readings import run_reading
from simulator.cluster.endings.rest import check_expired, check_rest, check_transient, drain, rest
from simulator.cluster.histories import (
    AUTO_DELETE_QUEUE,
    DELAYED_EXCHANGE,
    DURABLE_QUEUES,
    EXCHANGE_TYPES,
    EXCLUSIVE_QUEUE,
    FIXED_EXCHANGE,
    FIXED_QUEUES,
    KEYS,
    ONE_WAY,
    OTHER_WAY,
    RESET,
    ClusterHistory,
    make_cluster_history,
    make_mirror_history,
)
from simulator.cluster.node_steps import DEAD_MS, IDLE_MS, queue_name
from simulator.cluster.recording.features import TTLS_MS
from simulator.cluster.recording.recording import life_name
from simulator.cluster.spark.reading_faults import ReadingFaults
from simulator.cluster.spark.spark_steps import delete_groups
from simulator.cluster.world import World
from simulator.leaving.histories import DROP_HEAD, Step
from simulator.many_histories import Outcome, error_violation, run_each, shortened
from simulator.models.messages import Violation
from simulator.simulated.crash_watch import CrashWatch
from warrenmq.wire.field_table import encode_table, fields_from_python
from warrenmq.wire.methods import (
    ExchangeDeclare,
    ExchangeDeclareOk,
    ExchangeDelete,
    ExchangeDeleteOk,
    QueueBind,
    QueueBindOk,
    QueueDeclare,
    QueueDeclareOk,
    QueueDelete,
    QueueDeleteOk,
    QueuePurge,
    QueuePurgeOk,
    QueueUnbind,
    QueueUnbindOk,
)

RUNS_MAX: Final = 400
# Steps of time (ms): while clients work, and while a history waits.
_FINE_MS: Final = 5
_COARSE_MS: Final = 50
_Client = TypeVar("_Client", bound=ClusterClient)


def exchange_name(index: int) -> bytes:
    """The name of the exchange `index`; below 0 the default exchange."""
    return b"" if index < 0 else b"x%d" % index


class ClusterSimulation(ReadingFaults):
    """Runs one history; `run` returns the violation that ends it, or None."""

    def __init__(self, history: ClusterHistory, story: list[str] | None = None) -> None:
        super().__init__()
        self.history = history
        rng = Random(history.seed)
        self.world = World(history.nodes, history.locator, history.limits, rng, history.rules)
        self.world.recording.story = story
        self._watch = CrashWatch()
        # Clients that publish and declare, by node; consumers by number.
        self._publishers: dict[str, Publisher] = {}
        self._transactors: dict[str, TxPublisher] = {}
        self._admins: dict[str, ClusterClient] = {}
        self._consumers: dict[int, Consumer] = {}
        self._clients = 0
        # Faults of the network that are not over, by path.
        self._faults: dict[tuple[str, str], str] = {}

    @property
    def crash_count(self) -> int:
        """Crashes of nodes so far."""
        return self.world.crash_count

    def run(self) -> Violation | None:
        """Run the history; returns the first broken promise, or None at its end."""
        with self._watch:
            return self._run_history()

    def _run_history(self) -> Violation | None:
        try:
            self._set_up()
            self.world.disk_pace = self.history.disk_pace
            for step in self.history.steps:
                self.world.recording.tell(f"{self.world.now_ms % 10_000_000} {step}")
                self.world.rng.seed(step.seed)
                self._run(step)
                self.world.advance(_FINE_MS, _FINE_MS)
                self.take_answers()
                self._watch.check()
            self._finish()
            self._watch.check()
        except Violation as violation:
            return violation
        except Exception as error:  # An exception of the engine is a finding.
            return error_violation(error)
        return None

    # -- clients -----------------------------------------------------------------------------------

    def _client(self, known: dict[str, _Client], kind: type[_Client], index: int) -> _Client | None:
        """The client of a kind at a node, if the node runs and the client is not busy."""
        name = self.world.names[index]
        member = self.world.members.get(name)
        client = known.get(name)
        if client is None or client.is_lost:
            if member is None:
                return None
            if member.is_frozen:
                return None
            client = self._new_client(kind, index)
            known[name] = client
        return None if client.is_busy or client.member.is_frozen else client

    def _new_client(self, kind: type[_Client], index: int) -> _Client:
        world = self.world
        self._clients += 1
        member = world.members[world.names[index]]
        client = kind(member, world.recording, f"{kind.__name__[0].lower()}{self._clients}")
        world.recording.tell(f"            {client.name} connects to {member.name}")
        world.clients.append(client)
        world.pump()
        return client

    def _listens(self, index: int) -> bool:
        """Whether a node takes new connections."""
        member = self.world.members.get(self.world.names[index])
        return member is not None and not member.is_frozen

    def _consumer(self, number: int) -> Consumer | None:
        client = self._consumers.get(number)
        if client is not None and not client.is_lost:
            return None if client.is_busy or client.member.is_frozen else client
        index = self.world.rng.randrange(self.history.nodes)
        if not self._listens(index):
            return None
        client = self._consumers[number] = self._new_client(Consumer, index)
        return client

    # -- steps -------------------------------------------------------------------------------------

    def _run(self, step: Step) -> None:
        run: Callable[[Step], None] = getattr(self, f"_{step.kind}")
        run(step)
        self.world.pump()

    def _publish(self, step: Step) -> None:
        client = self._client(self._publishers, Publisher, step.number(0))
        exchange, key = step.number(1), step.number(2)
        for _ in range(step.number(3)):
            if client is None or client.is_busy or client.is_lost:
                return
            if client.member.is_alarmed and (exchange >= 0 or key >= FIXED_QUEUES):
                # Nobody knows where it goes when the alarm is over.
                return
            client.publish(
                exchange_name(exchange),
                queue_name(key) if exchange < 0 else KEYS[key],
                step.number(4),
                bool(step.number(5)),
                bool(step.number(6)),
                *self._draw_properties(),
            )

    def _draw_properties(self) -> tuple[int, int]:
        """The expiration (ms) and the priority of a message, where queues have rules."""
        if not self.history.rules:
            return 0, 0
        rng = self.world.rng
        return rng.choice((0, 0, 0, 0, *TTLS_MS)), rng.randrange(5)

    def _delay(self, step: Step) -> None:
        client = self._client(self._publishers, Publisher, step.number(0))
        key = queue_name(step.number(1))
        if client is not None and not client.member.is_alarmed and self._keeps_all(step.number(1)):
            client.delay(DELAYED_EXCHANGE, key, 20, step.number(2))

    def _tx(self, step: Step) -> None:
        client = self._client(self._transactors, TxPublisher, step.number(0))
        rules = self.world.recording.promises.of(queue_name(step.number(1)).decode())
        # A transaction does not say that a queue has refused a message.
        takes_all = not rules.has_limit() or rules.overflow == DROP_HEAD
        is_certain = step.number(1) < FIXED_QUEUES or (
            client is not None and not client.member.is_alarmed
        )
        if client is not None and takes_all and is_certain:
            client.transact(
                queue_name(step.number(1)),
                step.number(2),
                step.number(3),
                bool(step.number(4)),
            )

    def _consume(self, step: Step) -> None:
        client = self._consumer(step.number(0))
        if client is not None and not client.queue:
            queue = queue_name(step.number(1))
            # Quorum queues know no prefetch of a whole channel.
            is_quorum = self.world.recording.promises.of(queue.decode()).is_quorum
            is_shared = bool(step.number(4)) and not is_quorum
            client.consume(queue, step.number(2), bool(step.number(3)), is_shared)

    def _cancel(self, step: Step) -> None:
        client = self._consumer(step.number(0))
        if client is not None and client.queue:
            client.cancel()

    def _get(self, step: Step) -> None:
        client = self._consumer(step.number(0))
        if client is not None:
            client.get(queue_name(step.number(1)))

    def _ack(self, step: Step) -> None:
        self._settle(step, True)

    def _reject(self, step: Step) -> None:
        self._settle(step, False)

    def _settle(self, step: Step, is_ack: bool) -> None:
        client = self._consumers.get(step.number(0))
        if client is None or client.is_lost or client.member.is_frozen:
            return
        if client.unacked:
            client.settle(step.number(1), is_ack, bool(step.number(2)))

    def _sync(self, step: Step) -> None:
        client = self._consumer(step.number(0))
        if client is not None and client.queue:
            client.sync()

    def _move(self, step: Step) -> None:
        client = self._consumers.pop(step.number(0), None)
        if client is not None and not client.is_lost:
            client.on_lost()
        if self._listens(step.number(1)):
            self._consumers[step.number(0)] = self._new_client(Consumer, step.number(1))

    def _drop(self, step: Step) -> None:
        client = self._publishers.pop(self.world.names[step.number(0)], None)
        if client is not None and not client.is_lost:
            client.on_lost()

    # -- steps that change definitions -------------------------------------------------------------

    def _admin(self, node: int) -> ClusterClient | None:
        return self._client(self._admins, ClusterClient, node)

    def _declare(self, step: Step) -> None:
        client = self._admin(step.number(0))
        index = step.number(1)
        if client is not None and index != EXCLUSIVE_QUEUE:
            self._declare_queue(client, index)

    def _declare_queue(self, client: ClusterClient, index: int) -> None:
        durable = index < FIXED_QUEUES or index in DURABLE_QUEUES
        rules = self.world.recording.promises.of(queue_name(index).decode())
        declare = QueueDeclare(
            queue_name(index),
            False,
            durable,
            index == EXCLUSIVE_QUEUE,
            index == AUTO_DELETE_QUEUE,
            False,
            encode_table(fields_from_python(rules.arguments())),
        )
        client.call(declare, QueueDeclareOk, client.use_of(queue_name(index)))

    def _own(self, step: Step) -> None:
        """Let a consumer have the exclusive queue."""
        client = self._consumer(step.number(0))
        if client is not None:
            self._declare_queue(client, EXCLUSIVE_QUEUE)

    def _delete(self, step: Step) -> None:
        client = self._admin(step.number(0))
        if client is not None:
            self._delete_queue(client, step.number(1))

    def _delete_queue(self, client: ClusterClient, index: int) -> None:
        # If the client's node crashes before the deletion is decided, the queue may stay, empty.
        self.world.recording.leaky.add(life_of(client.member, queue_name(index)))
        client.call(QueueDelete(queue_name(index)), QueueDeleteOk)

    def _purge(self, step: Step) -> None:
        client = self._admin(step.number(0))
        if client is not None:
            queue = queue_name(step.number(1))
            self.world.recording.leaky.add(life_of(client.member, queue))
            client.call(QueuePurge(queue), QueuePurgeOk)

    def _exchange(self, step: Step) -> None:
        client = self._admin(step.number(0))
        if client is not None:
            self._declare_exchange(client, step.number(1))

    def _declare_exchange(self, client: ClusterClient, index: int) -> None:
        is_fleeting = index == len(EXCHANGE_TYPES) - 1
        declare = ExchangeDeclare(
            exchange_name(index), EXCHANGE_TYPES[index], False, not is_fleeting, is_fleeting
        )
        client.call(declare, ExchangeDeclareOk)

    def _exchange_delete(self, step: Step) -> None:
        client = self._admin(step.number(0))
        if client is not None:
            client.call(ExchangeDelete(exchange_name(step.number(1))), ExchangeDeleteOk)

    def _bind(self, step: Step) -> None:
        client = self._admin(step.number(0))
        if client is not None:
            exchange, queue = exchange_name(step.number(1)), queue_name(step.number(2))
            client.call(QueueBind(queue, exchange, KEYS[step.number(3)]), QueueBindOk)

    def _unbind(self, step: Step) -> None:
        client = self._admin(step.number(0))
        if client is not None:
            exchange, queue = exchange_name(step.number(1)), queue_name(step.number(2))
            client.call(QueueUnbind(queue, exchange, KEYS[step.number(3)]), QueueUnbindOk)

    # -- time and faults ---------------------------------------------------------------------------

    def _wait(self, step: Step) -> None:
        self.world.advance(step.number(0), _FINE_MS)

    def _long_wait(self, step: Step) -> None:
        self.world.advance(step.number(0), _COARSE_MS if step.number(0) < IDLE_MS else IDLE_MS)

    def _crash(self, step: Step) -> None:
        name = self.world.names[step.number(0)]
        if name in self.world.members:
            self.world.crash(name, step.text(1), bool(step.number(2)))

    def _freeze(self, step: Step) -> None:
        name = self.world.names[step.number(0)]
        member = self.world.members.get(name)
        if member is not None and member.is_frozen != bool(step.number(1)):
            member.is_frozen = not member.is_frozen
            if member.is_frozen:
                self._begin_fault((name, name), "freeze")
            else:
                self._end_fault((name, name))

    def _blackout(self, step: Step) -> None:
        for name in list(self.world.members):
            self.world.crash(name, step.text(0), False)

    def _strike(self, step: Step) -> None:
        """Publish to a queue, whose node crashes soon."""
        client = self._client(self._publishers, Publisher, step.number(0))
        name = queue_name(step.number(1))
        if client is not None and not client.member.is_alarmed:
            for size in (20, 5000, 300):
                client.publish(b"", name, size, True, False)
            self.world.advance(step.number(2) * _FINE_MS, _FINE_MS)
        for node, member in list(self.world.members.items()):
            if name in member.vhost.queues:
                self.world.crash(node, step.text(3), False)

    def _relive(self, step: Step) -> None:
        """Fill a queue, then delete and declare it; its node crashes before its disk knows."""
        index, queue = step.number(0), step.number(1)
        name, node = queue_name(queue), self.world.names[step.number(0)]
        admin = self._admin(index)
        publisher = self._client(self._publishers, Publisher, index)
        if admin is None or publisher is None:
            return
        self._declare_queue(admin, queue)
        self.world.advance(100, _FINE_MS)
        if not publisher.is_lost and not publisher.is_busy and not publisher.member.is_alarmed:
            publisher.publish(b"", name, 20, True, False)
        self.world.advance(100, _FINE_MS)
        member = self.world.members.get(node)
        if member is not None and name in member.vhost.queues and not admin.is_busy:
            member.is_stalled = True
            self._delete_queue(admin, queue)
            self._declare_queue(admin, queue)
            self.world.advance(200, _FINE_MS)
            if node in self.world.members:
                self.world.crash(node, step.text(2), False)

    def _crash_within(self, step: Step) -> None:
        member = self.world.members.get(self.world.names[step.number(0)])
        if member is not None:
            self.world.crash_rule = step.text(2)
            member.disk.files.crash_after = step.number(1)

    def _cut(self, step: Step) -> None:
        one, other = sorted((self.world.names[step.number(0)], self.world.names[step.number(1)]))
        path, kind = self.world.network.path(one, other), step.text(2)
        self._begin_fault((one, other), kind)
        if kind == RESET:
            self.world.network.break_off(one, other, self.world.now_ms)
        path.is_cut = [kind != OTHER_WAY, kind != ONE_WAY]

    def _slow(self, step: Step) -> None:
        one, other = sorted((self.world.names[step.number(0)], self.world.names[step.number(1)]))
        path = self.world.network.path(one, other)
        path.delay_ms, path.bytes_per_ms = step.number(2), step.number(3)
        self._begin_fault((one, other), "slow")

    def _begin_fault(self, place: tuple[str, str], kind: str) -> None:
        self._end_fault(place)
        self._faults[place] = self.world.recording.fault(kind, "-".join(place))

    def _end_fault(self, place: tuple[str, str]) -> None:
        if place in self._faults:
            self.world.recording.fault_over(self._faults.pop(place))

    def _heal(self, step: Step) -> None:
        one, other = sorted((self.world.names[step.number(0)], self.world.names[step.number(1)]))
        self.world.network.path(one, other).heal()
        self._end_fault((one, other))

    # -- begin and end -----------------------------------------------------------------------------

    def _set_up(self) -> None:
        world = self.world
        for name, value in self.history.policies:
            world.put_policy(name, value)
        for name in world.names:
            world.start(name)
        world.advance(200, _COARSE_MS)
        for index in range(FIXED_QUEUES):
            client = self._admin(index % self.history.nodes)
            assert client is not None
            self._declare_queue(client, index)
        rest(world)
        client = self._admin(0)
        assert client is not None
        for index in (FIXED_EXCHANGE, 1):
            self._declare_exchange(client, index)
        for index in range(2):
            bind = QueueBind(queue_name(index), exchange_name(FIXED_EXCHANGE), KEYS[0])
            client.call(bind, QueueBindOk)
        if self.history.policies:
            self._set_up_delays(client)
        rest(world)

    def _set_up_delays(self, client: ClusterClient) -> None:
        arguments = encode_table(fields_from_python({"x-delayed-type": "direct"}))
        declare = ExchangeDeclare(
            DELAYED_EXCHANGE, b"x-delayed-message", durable=True, arguments=arguments
        )
        client.call(declare, ExchangeDeclareOk)
        for index in range(FIXED_QUEUES):
            name = queue_name(index)
            client.call(QueueBind(name, DELAYED_EXCHANGE, name), QueueBindOk)

    def _finish(self) -> None:
        world = self.world
        world.recording.tell("the end: all faults are over")
        world.rng.seed(self.history.seed)
        world.disk_pace = 1.0
        self.end_feedings()
        for place in list(self._faults):
            self._end_fault(place)
        for path in world.network.paths.values():
            path.heal()
        world.resume_etcd()
        world.cut_from_etcd.clear()
        world.loses_answers.clear()
        for member in world.members.values():
            member.disk.files.crash_after = -1
            member.is_stalled = False
            member.is_frozen = False
        world.slow_disks.clear()
        for name in world.names:
            world.fill_disk(name, -1)
            world.alarm_disk(name, False)
        if len(world.members) < len(world.names):
            world.advance(DEAD_MS, IDLE_MS)
            if world.members:
                rest(world)
                check_transient(world)
        for name in world.names:
            self._start(name)
        rest(world)
        self.finish_batches()
        rest(world)
        if self.history.outage:
            run_outage(world, self.history.outage)
        if self.history.parting:
            run_parting(world, self.history.parting)
        if self.history.reading:
            for consumer in self._consumers.values():
                if not consumer.is_lost:
                    consumer.on_lost()
            world.pump()
            run_reading(world, self.history.reading, self.readers)
        world.recording.publishing_over()
        for client in list(world.clients):
            client.on_lost()
        self.end_streams()
        delete_groups(world)
        rest(world)
        check_rest(world)
        world.recording.copies_are_next()
        report_copies(world)
        if any(rules.expires_ms for rules in self.history.rules):
            check_expired(world)
        # Dead letters go to queues of lower numbers, which are drained after those they come from.
        queues = sorted(world.model.load().queues, key=lambda queue: queue.name, reverse=True)
        for number, queue in enumerate(queues):
            name = world.names[(self.history.seed + number) % len(world.names)]
            if self.history.rules:
                rest(world)
            drain(world, world.members[name], queue.name, life_name(queue.name, queue.birth))
        rest(world)
        check_rest(world)
        world.recording.copies_are_next()
        report_copies(world)
        world.recording.judge()


def run_cluster_seeds(seeds: range) -> Outcome:
    """Run the histories of `seeds`."""
    return run_each(seeds, lambda seed: ClusterSimulation(make_cluster_history(seed)))


def run_mirror_seeds(seeds: range) -> Outcome:
    """Run the histories of `seeds` in which queues are mirrored."""
    return run_each(seeds, lambda seed: ClusterSimulation(make_mirror_history(seed)))


def cluster_story(seed: int, is_shrunken: bool = True) -> list[str]:
    """The story of a history, line by line; if it fails, of the shortest found that does."""
    return _story(make_cluster_history(seed), is_shrunken)


def mirror_story(seed: int, is_shrunken: bool = True) -> list[str]:
    """The story of a history in which queues are mirrored."""
    return _story(make_mirror_history(seed), is_shrunken)


def _story(history: ClusterHistory, is_shrunken: bool) -> list[str]:
    violation = ClusterSimulation(history).run()
    if violation is not None and is_shrunken:
        kind = violation.kind

        def fails(steps: tuple[Step, ...]) -> bool:
            found = ClusterSimulation(replace(history, steps=steps)).run()
            return found is not None and found.kind == kind

        history = replace(history, steps=shortened(history.steps, fails, RUNS_MAX))
    story = [
        f"seed {history.seed}, {history.nodes} nodes, {history.locator}, {history.limits}",
        *(f"policy {name} {value}" for name, value in history.policies),
        *(f"q{number}: {rules.arguments()}" for number, rules in enumerate(history.rules)),
    ]
    violation = ClusterSimulation(history, story).run()
    return [*story, f"=> {violation}" if violation is not None else f"seed {history.seed} holds"]
