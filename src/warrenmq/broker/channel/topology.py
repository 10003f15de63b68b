"""The handlers of exchange.* and queue.*: RabbitMQ's checks, order and texts (protocol 5.3, 5.4).

`queue_deletion.py` has queue.delete. `definition_replies.py` sends the answers to methods that
change definitions.
"""

from __future__ import annotations

from collections.abc import Callable

from warrenmq.broker.channel.channel import Channel
from warrenmq.broker.channel.definition_replies import (
    await_deletion,
    propose,
    reply_at_once,
    reply_when_gone,
    reply_when_made,
    reply_when_there,
)
from warrenmq.broker.channel.direct_reply import REPLY_TO, reply_node
from warrenmq.broker.channel.remote_calls import (
    Attempt,
    declare_remote,
    probe_remote,
    purge_remote,
)
from warrenmq.broker.channel.suspended_method import resume_method
from warrenmq.broker.definitions.limits import is_reached
from warrenmq.broker.definitions.metadata import (
    Change,
    PutBinding,
    PutExchange,
    PutQueue,
)
from warrenmq.broker.definitions.rights import EXCHANGE, QUEUE
from warrenmq.broker.vhost.queue_checks import purge_refusal
from warrenmq.queues.arguments import (
    CLASSIC,
    EQUIVALENT_KEYS,
    QUORUM,
    QUORUM_EQUIVALENT_KEYS,
    check_quorum_properties,
    parse_arguments,
    with_default_type,
)
from warrenmq.queues.definition import QueueDefinition
from warrenmq.queues.message_taker import MessageTaker
from warrenmq.queues.queue import Queue
from warrenmq.queues.remote.queue import RemoteQueue
from warrenmq.routing.equivalence import (
    assert_equivalent_arguments,
    assert_equivalent_exchange,
    assert_equivalent_flag,
    name_argument,
)
from warrenmq.routing.exchange import (
    ALTERNATE_EXCHANGE,
    Destination,
    Exchange,
    binding_identity,
)
from warrenmq.routing.exchange_types import check_exchange_type, make_exchange
from warrenmq.routing.topic import TOPIC
from warrenmq.vocabulary.names import name_text
from warrenmq.wire import methods
from warrenmq.wire.errors import (
    ACCESS_REFUSED,
    NOT_FOUND,
    PRECONDITION_FAILED,
    RESOURCE_LOCKED,
    ChannelException,
)
from warrenmq.wire.field_table import Field, decode_table
from warrenmq.wire.method import Method

# -- exchanges -------------------------------------------------------------------------------------


def exchange_declare(channel: Channel, method: methods.ExchangeDeclare) -> None:
    """Handle exchange.declare."""
    vhost = channel.vhost
    name = _clean(method.exchange)
    reply = None if method.nowait else methods.ExchangeDeclareOk()
    if method.passive:
        _refuse_default(name)
        reply_when_there(channel, _exchange(channel, name), reply)
        return
    check_exchange_type(method.type)
    _refuse_default(name)
    rights = channel.connection.client.rights
    rights.expect_configure(EXCHANGE, name)
    exchange = vhost.router.exchanges.get(name)
    if exchange is not None:
        assert_equivalent_exchange(
            exchange,
            vhost.name,
            method.type,
            method.durable,
            method.auto_delete,
            method.internal,
            method.arguments,
        )
        reply_when_there(channel, exchange, reply)
        return
    if name.startswith(b"amq."):
        shown = name.decode("utf-8", "replace")
        raise ChannelException(
            ACCESS_REFUSED, f"exchange name '{shown}' contains reserved prefix 'amq.*'"
        )
    alternate = name_argument(
        decode_table(method.arguments), ALTERNATE_EXCHANGE, vhost.exchange_text(name)
    )
    if alternate is not None:
        rights.expect_read(EXCHANGE, name)
        rights.expect_write(EXCHANGE, alternate)
    if vhost.node.shared is not None:
        proposed = PutExchange(
            vhost.name,
            name,
            method.type,
            method.auto_delete,
            method.internal,
            method.arguments,
            method.durable,
        )
        # An exchange with wrong arguments is refused before any other node hears of it.
        make_exchange(
            name, method.type, method.durable, method.auto_delete, method.internal, method.arguments
        )
        propose(channel, vhost.node.shared, [proposed], lambda: exchange_declare(channel, method))
        return
    new = vhost.router.declare_exchange(
        name, method.type, method.durable, method.auto_delete, method.internal, method.arguments
    )
    vhost.policies.on_exchange(new)
    vhost.announce("exchange.created", new, channel.connection.client.user_name)
    if not new.durable:
        reply_at_once(channel, reply)
        return
    change = PutExchange(vhost.name, name, new.type, new.auto_delete, new.internal, new.arguments)
    reply_when_made(channel, new, change, reply)


def exchange_delete(channel: Channel, method: methods.ExchangeDelete) -> None:
    """Handle exchange.delete; a missing exchange counts as deleted."""
    vhost = channel.vhost
    name = _clean(method.exchange)
    _refuse_default(name)
    if name.startswith(b"amq."):
        raise ChannelException(
            ACCESS_REFUSED, f"deletion of system {vhost.exchange_text(name)} not allowed"
        )
    channel.connection.client.rights.expect_configure(EXCHANGE, name)
    exchange = vhost.router.exchanges.get(name)
    changes: list[Change] = []
    if exchange is not None:
        if method.if_unused and len(exchange.outgoing) > 0:
            raise ChannelException(PRECONDITION_FAILED, f"{vhost.exchange_text(name)} in use")
        user = channel.connection.client.user_name
        changes = vhost.forget(vhost.router.delete_exchange(exchange), user)
    reply_when_gone(channel, changes, None if method.nowait else methods.ExchangeDeleteOk())


def exchange_bind(channel: Channel, method: methods.ExchangeBind) -> None:
    """Handle exchange.bind."""
    source, destination = _clean(method.source), _clean(method.destination)
    _check_bind_rights(channel, source, EXCHANGE, destination, method.routing_key)
    _bind(
        channel,
        _exchange(channel, source),
        _exchange(channel, destination),
        method.routing_key,
        method.arguments,
        None if method.nowait else methods.ExchangeBindOk(),
        lambda: exchange_bind(channel, method),
    )


def exchange_unbind(channel: Channel, method: methods.ExchangeUnbind) -> None:
    """Handle exchange.unbind; a missing exchange or binding counts as unbound."""
    source, destination = _clean(method.source), _clean(method.destination)
    _check_bind_rights(channel, source, EXCHANGE, destination, method.routing_key)
    exchanges = channel.vhost.router.exchanges
    reply = None if method.nowait else methods.ExchangeUnbindOk()
    _unbind(
        channel,
        exchanges.get(source),
        exchanges.get(destination),
        method.routing_key,
        method.arguments,
        reply,
    )


# -- queues ----------------------------------------------------------------------------------------


def queue_declare(channel: Channel, method: methods.QueueDeclare) -> None:
    """Handle queue.declare."""
    vhost = channel.vhost
    connection = channel.connection
    name = _clean(method.queue)
    if name == REPLY_TO or name.startswith(REPLY_TO + b"."):
        _probe_reply_queue(channel, name, method.nowait)
        return
    if method.passive:
        _reply_declared(channel, _queue(channel, name), method)
        return
    method.arguments = with_default_type(
        method.arguments,
        vhost.definition.default_queue_type,
        method.durable and not method.exclusive and not method.auto_delete,
    )
    if not name:
        _refuse_unnamed_quorum_queue(method.arguments)
        name = b"amq.gen-" + connection.node.random_name()
    elif name.startswith(b"amq."):
        shown = name.decode("utf-8", "replace")
        raise ChannelException(
            ACCESS_REFUSED, f"queue name '{shown}' contains reserved prefix 'amq.*'"
        )
    _declare_named(channel, method, name)


def _declare_named(channel: Channel, method: methods.QueueDeclare, name: bytes) -> None:
    """Handle queue.declare for a queue that is to be called `name`."""
    vhost = channel.vhost
    connection = channel.connection
    rights = connection.client.rights
    rights.expect_configure(QUEUE, name)
    # An exclusive queue is deleted with its connection, so it is never durable (S8).
    durable = method.durable and not method.exclusive
    existing = vhost.taker(name)
    if existing is not None:
        _check_equivalent(channel, existing, method, durable)
        vhost.node.counters.churn.queues_declared += 1
        _reply_declared(channel, existing, method)
        return
    _check_queue_limit(channel, name)
    arguments = method.arguments
    text = vhost.queue_text(name)
    dead_letter_exchange = name_argument(decode_table(arguments), "x-dead-letter-exchange", text)
    if dead_letter_exchange is not None:
        rights.expect_read(QUEUE, name)
        rights.expect_write(EXCHANGE, dead_letter_exchange)
    settings = parse_arguments(arguments, text)
    if settings.traits.is_quorum:
        check_quorum_properties(method.durable, method.exclusive, method.auto_delete, text)
    owner = connection if method.exclusive else None
    shared = vhost.node.shared
    if shared is not None:
        proposed = PutQueue(vhost.name, 0, name, durable, method.auto_delete, arguments)
        shared.place(proposed, owner)
        propose(channel, shared, [proposed], lambda: _declare_named(channel, method, name))
        return
    queue_id = vhost.node.next_queue_id()
    definition = QueueDefinition(
        name, queue_id, durable, method.auto_delete, owner, arguments, settings
    )
    vhost.node.counters.churn.queues_declared += 1
    queue = vhost.add_queue(definition, connection.now_ms, connection.client.user_name)
    reply = _declared(channel, queue, method.nowait)
    if durable:
        change = PutQueue(vhost.name, queue.id, name, True, method.auto_delete, arguments)
        reply_when_made(channel, queue, change, reply)
    else:
        reply_at_once(channel, reply)


def _check_queue_limit(channel: Channel, name: bytes) -> None:
    vhost = channel.vhost
    limit = vhost.limits.max_queues
    if is_reached(limit, len(vhost.router.queues)):
        raise ChannelException(
            PRECONDITION_FAILED,
            f"cannot declare queue '{name_text(name)}': queue limit in vhost '{name_text(vhost.name)}' ({limit}) is reached",
        )


def queue_bind(channel: Channel, method: methods.QueueBind) -> None:
    """Handle queue.bind."""
    queue_name, key = _bind_names(channel, method.queue, method.routing_key)
    source = _clean(method.exchange)
    _check_bind_rights(channel, source, QUEUE, queue_name, key)
    exchange = _exchange(channel, source)
    _bind(
        channel,
        exchange,
        _queue(channel, queue_name),
        key,
        method.arguments,
        None if method.nowait else methods.QueueBindOk(),
        lambda: queue_bind(channel, method),
    )


def queue_unbind(channel: Channel, method: methods.QueueUnbind) -> None:
    """Handle queue.unbind; a missing queue, exchange or binding counts as unbound."""
    queue_name, key = _bind_names(channel, method.queue, method.routing_key)
    source = _clean(method.exchange)
    _check_bind_rights(channel, source, QUEUE, queue_name, key)
    queue = channel.vhost.taker(queue_name)
    exchange = channel.vhost.router.exchanges.get(source)
    if exchange is not None and queue is not None:
        # Only for a binding that exists does it matter whose queue it is.
        if binding_identity(queue, key, method.arguments) in exchange.outgoing:
            check_owner(channel, queue)
    _unbind(channel, exchange, queue, key, method.arguments, methods.QueueUnbindOk())


def queue_purge(channel: Channel, method: methods.QueuePurge) -> None:
    """Handle queue.purge, which drops ready messages only."""
    _purge(channel, method, Attempt(lambda attempt: _purge(channel, method, attempt)))


def _purge(channel: Channel, method: methods.QueuePurge, attempt: Attempt) -> None:
    queue = usable_queue(channel, method.queue)
    if isinstance(queue, RemoteQueue):
        purge_remote(channel, queue, method.nowait, attempt)
    elif isinstance(queue, Queue):
        _purge_here(channel, queue, method.nowait, attempt)


def _purge_here(channel: Channel, queue: Queue, nowait: bool, attempt: Attempt) -> None:
    purge = queue.purge(channel.connection.now_ms)
    if nowait:
        return
    if purge.is_done:
        channel.connection.out.method(channel.number, methods.QueuePurgeOk(purge.count))
        return
    # The purged messages left the queue already; the reply waits until the purge has settled them.
    channel.suspend()

    def finish() -> None:
        if not purge.has_failed:
            channel.connection.out.method(channel.number, methods.QueuePurgeOk(purge.count))
        elif not queue.is_hidden:
            raise purge_refusal(channel.vhost, queue)
        else:
            # Another copy leads, which may have the messages still.
            attempt.handle(attempt)

    def on_done(now_ms: int) -> None:
        resume_method(channel, finish, now_ms)

    purge.when_done = on_done


# -- shared ----------------------------------------------------------------------------------------


def named_queue(channel: Channel, name: bytes) -> bytes:
    """The queue name that a method means: empty stands for the last queue the channel declared."""
    name = _clean(name)
    if name:
        return name
    if not channel.last_queue:
        raise ChannelException(NOT_FOUND, "no previously declared queue")
    return channel.last_queue


def usable_queue(channel: Channel, name: bytes) -> MessageTaker:
    """The queue `name` (see `named_queue`), which this connection may read.

    Raises ChannelException 403 if the user may not, 404 if it is missing, 405 if it is exclusive to
    another connection.
    """
    name = named_queue(channel, name)
    channel.connection.client.rights.expect_read(QUEUE, name)
    return _queue(channel, name)


def check_owner(channel: Channel, queue: MessageTaker) -> None:
    """Raise ChannelException 405 if the queue is exclusive to another connection."""
    if queue.definition.owner is not None and queue.definition.owner is not channel.connection:
        raise _locked(channel, queue)


def _bind(
    channel: Channel,
    source: Exchange,
    destination: Destination,
    key: bytes,
    arguments: bytes,
    reply: Method | None,
    look_again: Callable[[], None],
) -> None:
    vhost = channel.vhost
    change = PutBinding(
        vhost.name, source.name, destination.name, destination.is_queue, key, arguments
    )
    known = source.outgoing.get(binding_identity(destination, key, arguments))
    if known is not None:
        reply_when_there(channel, known, reply)
        return
    if vhost.node.shared is not None:
        source.check_room(key)
        source.check_binding(key, arguments)
        propose(channel, vhost.node.shared, [change], look_again)
        return
    binding = vhost.router.bind(source, destination, key, arguments)
    assert binding is not None
    vhost.announce("binding.created", binding, channel.connection.client.user_name)
    if binding.is_durable():
        reply_when_made(channel, binding, change, reply)
    else:
        reply_at_once(channel, reply)


def _unbind(
    channel: Channel,
    source: Exchange | None,
    destination: Destination | None,
    key: bytes,
    arguments: bytes,
    reply: Method | None,
) -> None:
    vhost = channel.vhost
    changes: list[Change] = []
    if source is not None and destination is not None:
        removed = vhost.router.unbind(source, destination, key, arguments)
        if removed is not None:
            changes = vhost.forget(removed, channel.connection.client.user_name)
    reply_when_gone(channel, changes, reply)


def _check_bind_rights(
    channel: Channel, source: bytes, kind: str, destination: bytes, key: bytes
) -> None:
    """Check a bind or unbind of the queue or exchange `destination` in RabbitMQ's order."""
    rights = channel.connection.client.rights
    rights.expect_write(kind, destination)
    _refuse_default(source)
    if kind == EXCHANGE:
        _refuse_default(destination)
    rights.expect_read(EXCHANGE, source)
    exchange = channel.vhost.router.exchanges.get(source)
    if exchange is not None and exchange.type == TOPIC:
        rights.expect_topic_read(source, key)


def _bind_names(channel: Channel, queue_name: bytes, key: bytes) -> tuple[bytes, bytes]:
    name = named_queue(channel, queue_name)
    if not queue_name and not key:
        # With neither a queue name nor a key, the queue is bound under its own name.
        return name, name
    return name, key


def _reply_declared(channel: Channel, queue: MessageTaker, method: methods.QueueDeclare) -> None:
    """Answer a declaration of `queue`, which exists."""
    name = queue.name

    def again(same: Attempt) -> None:
        if method.passive or channel.vhost.taker(name) is not None:
            _reply_known(channel, _queue(channel, name), method.nowait, same)
        else:
            # It was deleted meanwhile.
            _declare_named(channel, method, name)

    _reply_known(channel, queue, method.nowait, Attempt(again))


def _reply_known(channel: Channel, queue: MessageTaker, nowait: bool, attempt: Attempt) -> None:
    if isinstance(queue, RemoteQueue):
        declare_remote(channel, queue, nowait, attempt)
    elif isinstance(queue, Queue):
        if not await_deletion(channel, queue, lambda: attempt.handle(attempt)):
            reply_when_there(channel, queue, _declared(channel, queue, nowait))


def _declared(channel: Channel, queue: Queue, nowait: bool) -> Method | None:
    """The reply to a declaration of `queue`, None for no-wait.

    The channel means this queue when its later methods name none.
    """
    channel.last_queue = queue.name
    if nowait:
        return None
    queue.last_used_ms = channel.connection.now_ms
    return methods.QueueDeclareOk(queue.name, queue.ready_count, len(queue.consumers))


def _check_equivalent(
    channel: Channel, queue: MessageTaker, method: methods.QueueDeclare, durable: bool
) -> None:
    owner = channel.connection if method.exclusive else None
    if queue.definition.owner is not owner:
        raise _locked(channel, queue)
    text = channel.vhost.queue_text(queue.name)
    assert_equivalent_flag("durable", text, durable, queue.durable)
    assert_equivalent_flag("auto_delete", text, method.auto_delete, queue.definition.auto_delete)
    if method.arguments != queue.definition.arguments:
        received = decode_table(method.arguments)
        current = decode_table(queue.definition.arguments)
        # A missing x-queue-type equals `classic`.
        if "x-queue-type" not in current:
            _drop_default_type(received)
        elif "x-queue-type" not in received:
            _drop_default_type(current)
        is_quorum = queue.settings.traits.is_quorum
        keys = QUORUM_EQUIVALENT_KEYS if is_quorum else EQUIVALENT_KEYS
        assert_equivalent_arguments(keys, text, received, current)


def _drop_default_type(arguments: dict[str, Field]) -> None:
    field = arguments.get("x-queue-type")
    if field is not None and field.value == CLASSIC.encode():
        del arguments["x-queue-type"]


def _refuse_unnamed_quorum_queue(arguments: bytes) -> None:
    field = decode_table(arguments).get("x-queue-type") if arguments else None
    if field is not None and field.value == QUORUM.encode():
        raise ChannelException(
            PRECONDITION_FAILED,
            "Cannot declare a server-named queue for type rabbit_quorum_queue",
        )


def _probe_reply_queue(channel: Channel, name: bytes, nowait: bool) -> None:
    # A declaration of a direct reply-to name creates nothing: it asks whether a channel consumes
    # these replies (protocol 9.6).
    if name != REPLY_TO and name not in channel.vhost.reply_channels:
        home = channel.connection.node.remote_nodes.by_name.get(reply_node(name))
        if home is not None and not nowait and probe_remote(channel, home, name):
            return
        raise ChannelException(NOT_FOUND, f"no {channel.vhost.queue_text(name)}")
    if not nowait:
        channel.connection.out.method(channel.number, methods.QueueDeclareOk(name, 0, 1))


def _queue(channel: Channel, name: bytes) -> MessageTaker:
    queue = channel.vhost.taker(name)
    if queue is None:
        raise ChannelException(NOT_FOUND, f"no {channel.vhost.queue_text(name)}")
    check_owner(channel, queue)
    return queue


def _exchange(channel: Channel, name: bytes) -> Exchange:
    exchange = channel.vhost.router.exchanges.get(name)
    if exchange is None:
        raise ChannelException(NOT_FOUND, f"no {channel.vhost.exchange_text(name)}")
    return exchange


def _refuse_default(name: bytes) -> None:
    if not name:
        raise ChannelException(ACCESS_REFUSED, "operation not permitted on the default exchange")


def _locked(channel: Channel, queue: MessageTaker) -> ChannelException:
    return ChannelException(
        RESOURCE_LOCKED,
        f"cannot obtain exclusive access to locked {channel.vhost.queue_text(queue.name)}. It could be originally "
        "declared on another connection or the exclusive property value does not match that of the original "
        "declaration.",
    )


def _clean(name: bytes) -> bytes:
    """`name` without CR and LF, which RabbitMQ drops from names too."""
    if b"\r" in name or b"\n" in name:
        return name.replace(b"\r", b"").replace(b"\n", b"")
    return name
