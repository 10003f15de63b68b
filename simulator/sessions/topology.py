"""Declarations, bindings and deletions by clients, and the deletions that the broker makes itself.

The model (`simulator/models/topology.py`) changes with the request, since the broker serves a
channel that waits for nothing at once; the answer says that the change is durable. The model
deletes queues that end without a request (with a connection, with the last consumer, after some
time without use) by rules of its own. `check_topology` compares the model with the broker.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Protocol

from simulator.models.messages import (
    NO_OWNER,
    READY,
    RESERVING,
    SETTLED,
    UNSURE,
    QueueModel,
    Violation,
)
from simulator.models.oracle import Oracle
from simulator.models.stored_definitions import Key
from simulator.models.topology import (
    Arguments,
    BindingModel,
    ExchangeModel,
    decode_arguments,
    encode_arguments,
)
from simulator.operations import (
    AUTO_DELETE,
    BINDING_ARGUMENTS,
    BINDING_KEYS,
    EXCHANGE_TYPES,
    EXCLUSIVE,
    EXPIRING,
    QUEUES,
    UNUSED_MS,
    Operation,
    exchange_name,
)
from simulator.sessions.states import ChannelModel
from simulator.simulated.node import SimulatedNode
from warrenmq.wire.method import Method
from warrenmq.wire.methods import (
    ExchangeBind,
    ExchangeBindOk,
    ExchangeDeclare,
    ExchangeDeclareOk,
    ExchangeDelete,
    ExchangeDeleteOk,
    ExchangeUnbind,
    ExchangeUnbindOk,
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

TOPOLOGY_OPERATIONS: Final = frozenset(
    (
        "declare", "declare_temporary", "delete", "purge", "exchange_declare", "exchange_delete", "bind", "unbind",
    )
)  # fmt: skip
# The exchange that every queue is bound to after its declaration.
EXCHANGE: Final = b"amq.fanout"

Answer = Callable[[Method, bytes, bytes], None]


class Channels(Protocol):
    """The channels of the clients."""

    channels: dict[int, ChannelModel]

    def free_channel(self, connection: int) -> ChannelModel | None:
        """A free channel, of `connection` unless that is NO_OWNER."""

    def ask(
        self, channel: ChannelModel, method: Method, answer: type[Method], then: Answer
    ) -> None:
        """Send `method`; `then` gets the answer."""


class Unanswered:
    """A durable definition whose answer is outstanding, and how to undo it if it is refused."""

    def __init__(
        self,
        text: str,
        is_there: Callable[[], bool],
        take_back: Callable[[], None],
        failed_commits: int,
    ) -> None:
        self.text = text
        self.is_there = is_there
        self.take_back = take_back
        # Failed commits of the node at the time of the request.
        self.failed_commits = failed_commits


class TopologySessions:
    """The clients of one node, as authors of definitions."""

    def __init__(self, node: SimulatedNode, oracle: Oracle, clients: Channels) -> None:
        self.node = node
        self.oracle = oracle
        self._clients = clients
        self._unanswered: list[Unanswered] = []

    def take_back_unstored(self) -> None:
        """Undo in the model what the broker could not store, even if the author is gone."""
        for made in list(self._unanswered):
            if made.is_there():
                continue
            self._unanswered.remove(made)
            if made.failed_commits == self.node.failed_commits:
                raise Violation("topology", f"{made.text} is gone, and no commit has failed")
            made.take_back()

    def _made(
        self,
        text: str,
        keys: list[Key],
        is_there: Callable[[], bool],
        take_back: Callable[[], None],
    ) -> Callable[[], None]:
        """Note that `keys` were made; returns the function to call when that is answered."""
        made = Unanswered(text, is_there, take_back, self.node.failed_commits)
        if keys:
            self._unanswered.append(made)

        def answered() -> None:
            if made in self._unanswered:
                self._unanswered.remove(made)

        return answered

    def queue(self, index: int, connection: int = NO_OWNER) -> QueueModel | None:
        """Queue number `index`, once its declaration is answered and if `connection` may use it."""
        queue = self.oracle.topology.queues.get(b"q%d" % index)
        if queue is None or not queue.is_bound:
            return None
        return queue if connection == NO_OWNER or queue.owner in (NO_OWNER, connection) else None

    def run(self, operation: Operation) -> bool:
        """Run the operation of a client; False when it means nothing at its turn."""
        match operation.kind:
            case "declare":
                arguments: list[tuple[str, object]] = []
                if operation.number(2):
                    arguments.append(("x-message-ttl", operation.number(2)))
                if operation.number(3):
                    arguments.append(("x-queue-mode", "lazy"))
                return self._declare(operation, tuple(arguments), "")
            case "declare_temporary":
                kind = operation.text(2)
                expires = (("x-expires", UNUSED_MS),) if kind == EXPIRING else ()
                return self._declare(operation, expires, kind)
            case "delete" | "purge":
                return self._delete_or_purge(operation)
            case "exchange_declare":
                return self._declare_exchange(operation)
            case "exchange_delete":
                return self._delete_exchange(operation)
            case _:
                return self._bind_or_unbind(operation)

    # -- queues ------------------------------------------------------------------------------------

    def _declare(self, operation: Operation, arguments: Arguments, kind: str) -> bool:
        topology = self.oracle.topology
        name = b"q%d" % operation.number(0)
        channel = self._clients.free_channel(NO_OWNER)
        if name in topology.queues or channel is None:
            return False
        is_exclusive, is_auto_delete = kind == EXCLUSIVE, kind == AUTO_DELETE
        durable = bool(operation.number(1)) and not is_exclusive
        raw = encode_arguments(arguments)
        declare = QueueDeclare(name, False, durable, is_exclusive, is_auto_delete, False, raw)

        def declared(_method: Method, _properties: bytes, _body: bytes) -> None:
            answered()
            model.is_declared = True
            topology.stored.answered(keys, version)
            if topology.queues.get(name) is not model:
                return
            self._bind(channel, BindingModel(EXCHANGE, name, True, b"", ()), bound)

        def bound() -> None:
            model.is_bound = True

        self._clients.ask(channel, declare, QueueDeclareOk, declared)
        engine = self.node.vhost.queues.get(name)
        if engine is None or engine.id in self.oracle.queues:
            raise Violation(
                "topology", f"queue {name.decode()} was declared, and there is no new one"
            )
        ttl_ms = dict(arguments).get("x-message-ttl", 0)
        expires_ms = UNUSED_MS if kind == EXPIRING else 0
        assert isinstance(ttl_ms, int)
        owner = channel.connection if is_exclusive else NO_OWNER
        model = QueueModel(
            engine.id, name.decode(), durable, ttl_ms, raw, is_auto_delete, owner, expires_ms
        )
        model.start(self.node.now_ms)
        self.oracle.queues[engine.id] = model
        keys = topology.add_queue(model)
        version = topology.stored.version

        def is_there() -> bool:
            engine = self.node.vhost.queues.get(name)
            return model.is_deleting or (engine is not None and engine.id == model.id)

        def take_back() -> None:
            self._remove(model)

        answered = self._made(f"queue {model.name}", keys, is_there, take_back)
        return True

    def _delete_or_purge(self, operation: Operation) -> bool:
        queue = self.queue(operation.number(0))
        if queue is None:
            return False
        channel = self._clients.free_channel(queue.owner)
        # Finding a channel takes a turn, in which the queue may be deleted.
        if channel is None or queue.is_deleting:
            return False
        if operation.kind == "purge":
            self._purge(channel, queue)
            return True

        def deleted() -> None:
            queue.is_deleted = True

        delete = QueueDelete(queue.name.encode(), False, False, False)
        self._change(channel, self._remove(queue), delete, QueueDeleteOk, deleted)
        return True

    def _purge(self, channel: ChannelModel, queue: QueueModel) -> None:
        # A reader group may have the messages that are not ready.
        states = (READY,) if queue.has_group else (READY, UNSURE)
        dropped = [copy for copy in queue.copies.values() if copy.state in states]
        for copy in queue.copies.values():
            if copy.state == RESERVING:
                # The message is purged, or a reader group has reserved it.
                copy.state = UNSURE
        for copy in dropped:
            copy.state = SETTLED

        def purged(_method: Method, _properties: bytes, _body: bytes) -> None:
            for copy in dropped:
                self.oracle.settle(copy)

        self._clients.ask(channel, QueuePurge(queue.name.encode(), False), QueuePurgeOk, purged)

    def _remove(self, queue: QueueModel) -> list[Key]:
        """Delete the queue with its consumers; returns the keys of its stored definitions."""
        for channel in self._clients.channels.values():
            for tag in [
                tag for tag, consumer in channel.consumers.items() if consumer.queue is queue
            ]:
                del channel.consumers[tag]
        queue.consumers = 0
        return self.oracle.delete(queue)

    # -- queues that go by themselves --------------------------------------------------------------

    def consumer_added(self, queue: QueueModel) -> None:
        """Add a consumer to the queue."""
        queue.consumers += 1
        queue.had_consumer = True

    def consumer_gone(self, queue: QueueModel) -> None:
        """Remove a consumer; an auto-delete queue goes with its last one."""
        if queue.is_deleting:
            return
        queue.consumers -= 1
        queue.last_used_ms = self.node.now_ms
        if queue.auto_delete and queue.consumers == 0:
            self._remove(queue)

    def connection_gone(self, connection: int) -> None:
        """End a connection and delete its exclusive queues."""
        for queue in list(self.oracle.topology.queues.values()):
            if queue.owner == connection:
                self._remove(queue)

    def expire_unused(self) -> None:
        """Delete queues that were unused for too long, just before the broker's timer fires."""
        for queue in list(self.oracle.topology.queues.values()):
            if queue.is_unused(self.node.now_ms):
                self._remove(queue)

    # -- exchanges and bindings --------------------------------------------------------------------

    def _declare_exchange(self, operation: Operation) -> bool:
        topology = self.oracle.topology
        name = exchange_name(operation.number(0))
        kind = EXCHANGE_TYPES[operation.number(1)]
        durable, auto_delete = bool(operation.number(2)), bool(operation.number(3))
        alternate = exchange_name(operation.number(4)) if operation.number(4) >= 0 else b""
        model = ExchangeModel(
            name, kind, durable, auto_delete, bool(operation.number(5)), alternate, {}
        )
        known = topology.exchanges.get(name)
        if known is not None and known.definition() != model.definition():
            return False
        channel = self._clients.free_channel(NO_OWNER)
        if channel is None:
            return False
        keys = topology.declare_exchange(model) if known is None else []

        def is_there() -> bool:
            return (
                topology.exchanges.get(name) is not model
                or name in self.node.vhost.router.exchanges
            )

        def take_back() -> None:
            topology.delete_exchange(name)

        answered = self._made(f"exchange {name.decode()}", keys, is_there, take_back)
        arguments = encode_arguments((("alternate-exchange", alternate),) if alternate else ())
        declare = ExchangeDeclare(
            name, kind, False, durable, auto_delete, model.internal, False, arguments
        )
        self._change(channel, keys, declare, ExchangeDeclareOk, answered)
        return True

    def _delete_exchange(self, operation: Operation) -> bool:
        name = exchange_name(operation.number(0))
        exchange = self.oracle.topology.exchanges.get(name)
        channel = self._clients.free_channel(NO_OWNER)
        if exchange is None or channel is None:
            return False
        is_for_unused = not exchange.bindings
        keys = self.oracle.topology.delete_exchange(name)
        self._change(channel, keys, ExchangeDelete(name, is_for_unused, False), ExchangeDeleteOk)
        return True

    def _bind_or_unbind(self, operation: Operation) -> bool:
        topology = self.oracle.topology
        source = exchange_name(operation.number(0))
        slot = operation.number(1)
        is_to_queue = slot < QUEUES
        destination = b"q%d" % slot if is_to_queue else exchange_name(slot - QUEUES)
        key = BINDING_KEYS[operation.number(2)]
        arguments = BINDING_ARGUMENTS[operation.number(3)]
        binding = BindingModel(source, destination, is_to_queue, key, arguments)
        queue = self.queue(slot) if is_to_queue else None
        channel = self._clients.free_channel(NO_OWNER if queue is None else queue.owner)
        if channel is None or source not in topology.exchanges:
            return False
        if operation.kind == "bind":
            if queue is None if is_to_queue else destination not in topology.exchanges:
                return False
            self._bind(channel, binding)
            return True
        if binding not in topology.exchanges[source].bindings or (is_to_queue and queue is None):
            return False
        # The order of the arguments does not matter.
        raw = encode_arguments(arguments[::-1])
        if is_to_queue:
            self._change(
                channel,
                topology.unbind(binding),
                QueueUnbind(destination, source, key, raw),
                QueueUnbindOk,
            )
        else:
            unbind = ExchangeUnbind(destination, source, key, False, raw)
            self._change(channel, topology.unbind(binding), unbind, ExchangeUnbindOk)
        return True

    def _bind(
        self, channel: ChannelModel, binding: BindingModel, then: Callable[[], None] | None = None
    ) -> None:
        topology = self.oracle.topology
        keys = topology.bind(binding)
        source = topology.exchanges[binding.source]

        def is_there() -> bool:
            if (
                topology.exchanges.get(binding.source) is not source
                or binding not in source.bindings
            ):
                return True
            engine = self.node.vhost.router.exchanges.get(binding.source)
            # An auto-delete exchange goes with its last binding, even when that binding is undone.
            return engine is not None and any(
                (found.destination.name, found.destination.is_queue, found.key)
                == (binding.destination, binding.is_to_queue, binding.key)
                and decode_arguments(found.arguments) == binding.arguments
                for found in engine.outgoing.values()
            )

        def take_back() -> None:
            topology.unbind(binding)

        answered = self._made(str(binding), keys, is_there, take_back)

        def bound() -> None:
            answered()
            if then is not None:
                then()

        raw = encode_arguments(binding.arguments)
        names = (binding.destination, binding.source, binding.key)
        if binding.is_to_queue:
            self._change(channel, keys, QueueBind(*names, False, raw), QueueBindOk, bound)
        else:
            self._change(channel, keys, ExchangeBind(*names, False, raw), ExchangeBindOk, bound)

    def _change(
        self,
        channel: ChannelModel,
        keys: list[Key],
        method: Method,
        answer: type[Method],
        then: Callable[[], None] | None = None,
    ) -> None:
        """Request a change that the model has already made; its answer says that it is durable."""
        stored = self.oracle.topology.stored
        version = stored.version

        def changed(_method: Method, _properties: bytes, _body: bytes) -> None:
            stored.answered(keys, version)
            if then is not None:
                then()

        self._clients.ask(channel, method, answer, changed)


def check_topology(node: SimulatedNode, oracle: Oracle) -> None:
    """Violation unless the node has the queues, exchanges and bindings of the model."""
    topology = oracle.topology
    router = node.vhost.router
    _compare(
        "queues",
        [(name, queue.id) for name, queue in node.vhost.queues.items()],
        [(name, model.id) for name, model in topology.queues.items()],
    )
    _compare("exchanges", list(router.exchanges), list(topology.exchanges))
    _compare(
        "bindings",
        [
            (
                binding.source.name,
                binding.destination.name,
                binding.destination.is_queue,
                binding.key,
            )
            for binding in router.all_bindings()
            if binding.source.name
        ],
        [
            (binding.source, binding.destination, binding.is_to_queue, binding.key)
            for binding in topology.bindings()
        ],
    )


def _compare(what: str, listed: list[Any], known: list[Any]) -> None:
    if sorted(listed) != sorted(known):
        raise Violation(
            "topology", f"the broker has the {what} {sorted(listed)}, not {sorted(known)}"
        )
