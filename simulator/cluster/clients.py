"""The clients of a simulated cluster: one connection with one channel each, at one node.

Every synchronous method must be answered in the end, and every publish: `waits_for` says what is
missing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple

from simulator.checker.events import CANCELLED
from simulator.cluster.member import Member
from simulator.cluster.recording.promises import name_of
from simulator.cluster.recording.recording import Recording, life_name
from simulator.models.messages import Violation
from simulator.simulated.client import (
    SimulatedClient,
    content_frames,
    handshake,
    method_frame,
)
from warrenmq.cluster.mirrors.replica.in_sync import InSync
from warrenmq.routing.delay import X_DELAY
from warrenmq.wire.errors import (
    ACCESS_REFUSED,
    NOT_FOUND,
    PRECONDITION_FAILED,
    RESOURCE_ERROR,
    RESOURCE_LOCKED,
)
from warrenmq.wire.field_table import encode_table, fields_from_python
from warrenmq.wire.method import Method
from warrenmq.wire.methods import (
    BasicAck,
    BasicCancel,
    BasicCancelOk,
    BasicConsume,
    BasicConsumeOk,
    BasicDeliver,
    BasicGet,
    BasicGetEmpty,
    BasicGetOk,
    BasicNack,
    BasicPublish,
    BasicQos,
    BasicQosOk,
    BasicReturn,
    ChannelClose,
    ConfirmSelect,
    ConfirmSelectOk,
    ConnectionClose,
    QueueDeclare,
    QueueDeclareOk,
    TxCommit,
    TxCommitOk,
    TxRollback,
    TxRollbackOk,
    TxSelect,
    TxSelectOk,
)
from warrenmq.wire.properties import Properties

CHANNEL: Final = 1
_HANDSHAKE: Final = handshake("connection.blocked", "consumer_cancel_notify", "basic.nack")
# Codes of a node without a decision, or without its link: the queue is gone, or down, or used
# exclusively; nothing was decided in time.
_REFUSALS: Final = frozenset(
    (NOT_FOUND, ACCESS_REFUSED, RESOURCE_LOCKED, RESOURCE_ERROR, PRECONDITION_FAILED)
)


def life_of(member: Member, name: bytes) -> str:
    """The queue `name` as `member` knows it, in its present life; "" if there is none."""
    queue = member.vhost.taker(name)
    return "" if queue is None else life_name(name, int(queue.definition.birth))


class ClusterClient:
    """One client; `name` is its own, for the story."""

    def __init__(self, member: Member, recording: Recording, name: str) -> None:
        self.member = member
        self.recording = recording
        self.name = name
        # The channel is closed, or the connection or its node is gone.
        self.is_lost = False
        # Synchronous methods without an answer: the class of the answer, and what it leads to.
        self._calls: deque[tuple[type[Method], Callable[[Method], None] | None]] = deque()
        self._client = SimulatedClient(member.broker, self._receive, member.now_ms, _HANDSHAKE)
        self._client.open_channel(CHANNEL, member.now_ms)

    @property
    def is_busy(self) -> bool:
        """Whether the client waits for an answer, or its channel for anything."""
        channel = self._client.engine.channels.get(CHANNEL)
        return bool(self._calls) or channel is None or channel.is_suspended

    def waits_for(self) -> str:
        """The call that the client still waits for, or ""."""
        return (
            "" if self.is_lost or not self._calls else f"{self.name}: {self._calls[0][0].__name__}"
        )

    def call(
        self, method: Method, answer: type[Method], then: Callable[[Method], None] | None = None
    ) -> None:
        """Send a synchronous method; `then` gets its answer."""
        self._calls.append((answer, then))
        self._send(method)

    def use_of(self, queue: bytes) -> Callable[[Method], None]:
        """For `call`: what notes that the call, which is sent now, has used a queue."""
        life, sent_ms = life_of(self.member, queue), self.member.now_ms

        def on_answer(_method: Method) -> None:
            if life and life == life_of(self.member, queue):
                self.recording.used(life, sent_ms)

        return on_answer

    def _send(self, method: Method) -> None:
        self._send_bytes(method_frame(CHANNEL, method))

    def _send_bytes(self, data: bytes) -> None:
        self._client.send(data, self.member.now_ms)
        self.member.has_news = True

    def drop(self) -> None:
        """Lose the connection."""
        if not self.is_lost:
            self.on_lost()
        self._client.engine.shell = None
        self.member.broker.disconnect(self._client.engine, self.member.now_ms)
        self.member.has_news = True

    def on_lost(self) -> None:
        """Note that the connection is gone."""
        self.is_lost = True

    def _receive(self, _channel: int, method: Method, properties: bytes, body: bytes) -> None:
        if self.is_lost:
            return
        if isinstance(method, ChannelClose | ConnectionClose):
            text = method.reply_text.decode()
            self.recording.tell(f"            {self.name}: {method.reply_code} {text}")
            # A failed disk closes the connection of a transaction, and nothing else closes one.
            is_whole = isinstance(method, ConnectionClose)
            if method.reply_code not in ((RESOURCE_ERROR,) if is_whole else _REFUSALS):
                raise Violation("closed", f"{method.reply_code} {text}")
            self.on_lost()
        elif self._calls and isinstance(method, self._calls[0][0]):
            _answer, then = self._calls.popleft()
            if then is not None:
                then(method)
        else:
            self.take(method, properties, body)

    def take(self, method: Method, properties: bytes, body: bytes) -> None:
        """Take a method that answers no call."""
        raise Violation("answer", f"{self.name} did not ask for {type(method).__name__}")


class Publisher(ClusterClient):
    """A client that publishes in confirm mode."""

    def __init__(self, member: Member, recording: Recording, name: str) -> None:
        super().__init__(member, recording, name)
        # Publishes without an answer by tag: messages.
        self._unanswered: dict[int, str] = {}
        self._returned: dict[bytes, str] = {}
        self._tags = 0
        self.call(ConfirmSelect(False), ConfirmSelectOk)

    def waits_for(self) -> str:
        if self._unanswered and not self.is_lost:
            return f"{self.name}: an answer to {next(iter(self._unanswered.values()))}"
        return super().waits_for()

    def publish(
        self,
        exchange: bytes,
        key: bytes,
        size: int,
        is_persistent: bool,
        is_mandatory: bool,
        expiration_ms: int = 0,
        priority: int = 0,
    ) -> None:
        """Publish one message."""
        message, body = self.recording.next_body(size)
        self._tags += 1
        self._unanswered[self._tags] = message
        self._returned[body] = message
        queues = route(self.member, exchange, key)
        self.recording.published(
            message,
            body,
            self.name,
            self._tags,
            queues,
            is_persistent,
            expiration_ms,
            priority,
        )
        properties = Properties(
            delivery_mode=2 if is_persistent else 1,
            expiration=str(expiration_ms).encode() if expiration_ms else None,
            priority=priority or None,
        )
        self._send_bytes(publish_frames(exchange, key, body, properties, is_mandatory))

    def delay(self, exchange: bytes, key: bytes, size: int, delay_ms: int) -> None:
        """Publish one message to a delayed exchange, where it waits for `delay_ms`."""
        message, body = self.recording.next_body(size)
        self._tags += 1
        self._unanswered[self._tags] = message
        self.recording.handed_over(message, body, route(self.member, exchange, key))
        headers = encode_table(fields_from_python({X_DELAY: delay_ms}))
        properties = Properties(delivery_mode=2, headers=headers)
        self._send_bytes(publish_frames(exchange, key, body, properties, False))

    def take(self, method: Method, properties: bytes, body: bytes) -> None:
        if isinstance(method, BasicReturn):
            self.recording.returned(self._returned[body], method.reply_code)
        elif isinstance(method, BasicAck | BasicNack):
            last = method.delivery_tag
            tags = [tag for tag in self._unanswered if tag <= last] if method.multiple else [last]
            for tag in tags:
                message = self._unanswered.pop(tag, "")
                if not message:
                    raise Violation("answer", f"{self.name}: tag {tag} was answered twice")
                if isinstance(method, BasicAck):
                    self.recording.confirmed(message)
                else:
                    self.recording.nacked(message)
        else:
            super().take(method, properties, body)


class TxPublisher(ClusterClient):
    """A client that publishes in transactions."""

    def __init__(self, member: Member, recording: Recording, name: str) -> None:
        super().__init__(member, recording, name)
        self._count = 0
        self.call(TxSelect(), TxSelectOk)

    def transact(self, key: bytes, count: int, size: int, is_committed: bool) -> None:
        """Publish `count` persistent messages to the queue `key`, and commit or roll back."""
        queues = route(self.member, b"", key)
        messages = []
        frames = b""
        for _ in range(count):
            message, body = self.recording.next_body(size)
            frames += publish_frames(b"", key, body, Properties(delivery_mode=2), False)
            if is_committed:
                self._count += 1
                messages.append(message)
                self.recording.published(message, body, self.name, self._count, queues, True)
        self._send_bytes(frames)

        def on_committed(_method: Method) -> None:
            for message in messages:
                self.recording.confirmed(message)

        if is_committed:
            self.call(TxCommit(), TxCommitOk, on_committed)
        else:
            self.call(TxRollback(), TxRollbackOk)


class _Link(NamedTuple):
    """The way to the messages of a queue: another one has other deliveries on it.

    `via` is the session with the queue's node, or what makes this node the master of a mirrored
    queue; None if the queue simply lives here. `epoch` is 0 for a queue that is not mirrored.
    """

    via: object
    epoch: int


class _Session:
    """A consumer, or a basic.get, as the history knows it."""

    def __init__(self, name: str, queue: str, prefetch: int, no_ack: bool) -> None:
        self.name = name
        self.queue = queue
        self.prefetch = prefetch
        self.no_ack = no_ack
        self.unacked_count = 0
        # Sessions with the queue's node that carried acks no call has covered yet.
        self.links: list[_Link] = []
        # An ack may have gone nowhere, so a call that succeeds says nothing.
        self.is_doubtful = False


class Consumer(ClusterClient):
    """A client with one consumer at most, which gets messages too."""

    def __init__(self, member: Member, recording: Recording, name: str) -> None:
        super().__init__(member, recording, name)
        # Unacked messages by tag: the session that delivered each, and its link.
        self.unacked: dict[int, tuple[_Session, _Link]] = {}
        self.queue = b""
        self._tag = b""
        self._sessions: dict[bytes, _Session] = {}
        self._count = 0

    def _new_session(
        self, queue: bytes, prefetch: int, no_ack: bool, subscribes: bool = False
    ) -> _Session:
        self._count += 1
        life = life_of(self.member, queue)
        session = _Session(f"{self.name}.{self._count}", life, prefetch, no_ack)
        is_single = subscribes and self.recording.promises.of(life).is_single_active
        self.recording.started(session.name, life, self.member.name, prefetch, is_single)
        if no_ack:
            self.recording.leaky.add(life)
        return session

    def _link(self, session: _Session) -> _Link:
        name = name_of(session.queue).encode()
        vhost = self.member.vhost
        queue = vhost.remote_queues.get(name)
        if queue is not None:
            return _Link(queue.home.session, queue.epoch)
        own = vhost.queues.get(name)
        source = None if own is None else own.confirm_source
        return _Link(source, source.epoch if isinstance(source, InSync) else 0)

    @property
    def is_doubtful(self) -> bool:
        """Whether an ack of the consumer may have gone nowhere: it then learns no more of any."""
        session = self._sessions.get(self._tag)
        return session is not None and session.is_doubtful

    # -- methods -----------------------------------------------------------------------------------

    def consume(
        self, queue: bytes, prefetch: int, no_ack: bool = False, is_shared: bool = False
    ) -> None:
        """Begin to consume; `is_shared`: the prefetch is that of the whole channel."""
        session = self._new_session(queue, prefetch, no_ack, subscribes=True)
        self.queue = queue
        self._tag = session.name.encode()
        self._sessions[self._tag] = session
        self.call(BasicQos(0, prefetch, is_shared), BasicQosOk)
        consume = BasicConsume(queue, self._tag, False, no_ack, False, False, b"")
        self.call(consume, BasicConsumeOk, self.use_of(queue))

    def cancel(self) -> None:
        """Cancel the consumer; its messages stay with the client."""
        self.call(BasicCancel(self._tag, False), BasicCancelOk, self._on_cancelled)

    def _on_cancelled(self, _method: Method) -> None:
        self.queue = b""

    def get(self, queue: bytes) -> None:
        """Get a message."""
        session = self._new_session(queue, 1, False)
        self._sessions[b""] = session
        self.call(BasicGet(queue, False), BasicGetOk, self.use_of(queue))

    def sync(self) -> None:
        """Ask the node of the consumer's queue something, behind all acks."""
        session = self._sessions.get(self._tag)
        if session is None or session.is_doubtful:
            return
        link = self._link(session)
        is_sure = all(each == link for each in session.links)
        session.links.clear()
        session.is_doubtful = not is_sure
        if is_sure:
            self.recording.called(session.name)

        def on_answer(_method: Method) -> None:
            if is_sure and self._link(session) == link:
                self.recording.answered(session.name, link.epoch)
            else:
                session.is_doubtful = True

        self.call(QueueDeclare(self.queue, True), QueueDeclareOk, on_answer)

    def settle(self, place: int, is_ack: bool, flag: bool) -> None:
        """Ack or reject a message; `flag`: multiple for an ack, requeue for a reject."""
        tag = sorted(self.unacked)[place % len(self.unacked)]
        tags = [each for each in self.unacked if each <= tag] if is_ack and flag else [tag]
        for each in tags:
            session, link = self.unacked.pop(each)
            session.unacked_count -= 1
            now = self._link(session)
            if now != link and now.epoch == link.epoch == 0:
                # The queue's node has taken the message back: the client settles nothing.
                continue
            if now != link and not (is_ack or not flag):
                # The message is ready again already.
                continue
            if is_ack or not flag:
                session.links.append(link)
                if is_ack:
                    self.recording.acked(session.name, each)
                else:
                    self.recording.rejected(session.name, each)
            else:
                self.recording.requeued(session.name, each)
        self._send(BasicAck(tag, flag) if is_ack else BasicNack(tag, False, flag))

    # -- events ------------------------------------------------------------------------------------

    def on_lost(self) -> None:
        super().on_lost()
        for session in self._sessions.values():
            self.recording.ended(session.name)
        self._sessions.clear()
        self.unacked.clear()
        self.queue = b""

    def _receive(self, _channel: int, method: Method, properties: bytes, body: bytes) -> None:
        if isinstance(method, BasicGetEmpty) and self._calls:
            self._calls.popleft()
            del self._sessions[b""]
            return
        if isinstance(method, BasicGetOk) and not self.is_lost:
            session = self._sessions.pop(b"")
            self._note(session, method.delivery_tag, method.redelivered, properties, body)
        super()._receive(_channel, method, properties, body)

    def take(self, method: Method, properties: bytes, body: bytes) -> None:
        if isinstance(method, BasicDeliver):
            session = self._sessions[method.consumer_tag]
            self._note(session, method.delivery_tag, method.redelivered, properties, body)
        elif isinstance(method, BasicCancel):
            session = self._sessions.pop(method.consumer_tag)
            self.recording.ended(session.name, CANCELLED)
            self.queue = b""
        else:
            super().take(method, properties, body)

    def _note(
        self, session: _Session, tag: int, redelivered: bool, properties: bytes, body: bytes
    ) -> None:
        is_local = name_of(session.queue).encode() in self.member.vhost.queues
        self.recording.delivered(session.name, tag, redelivered, properties, body, is_local)
        if session.no_ack:
            self.recording.acked(session.name, tag)
            return
        session.unacked_count += 1
        self.unacked[tag] = (session, self._link(session))
        if session.prefetch and session.unacked_count > session.prefetch:
            raise Violation("prefetch", f"{session.name} has {session.unacked_count} messages")


def route(member: Member, exchange: bytes, key: bytes) -> tuple[str, ...]:
    """The queues that a message goes to, as the node of its publisher knows them now."""
    router = member.vhost.router
    found = router.exchanges.get(exchange)
    if found is None:
        return ()
    return tuple(
        life_name(queue.name, int(queue.definition.birth))
        for queue in member.vhost.route(found, [key], b"")
    )


def publish_frames(
    exchange: bytes, key: bytes, body: bytes, properties: Properties, is_mandatory: bool
) -> bytes:
    """The frames of one publish."""
    method = method_frame(CHANNEL, BasicPublish(exchange, key, is_mandatory, False))
    return method + content_frames(CHANNEL, properties.encode(), body)
