"""Exchanges, queues and bindings of a backup in the vhost of a running node: compared, and declared where they are missing.

Over AMQP, which compares by itself: who declares what is there already changes nothing, or is told what is different.
"""

from dataclasses import dataclass
from typing import Any, Final

from warrenmq.admin.client import NodeAddress
from warrenmq.broker.definitions.metadata import Definitions, PutBinding, PutExchange, PutQueue
from warrenmq.pipeline.broker import RETRY_OPTION, as_job_error
from warrenmq.pipeline.result import JobError
from warrenmq.spark.amqp.connection import AmqpConnection, AmqpLostError, AmqpRefusedError
from warrenmq.spark.retry import Retry
from warrenmq.wire.method import Method
from warrenmq.wire.methods import (
    ExchangeBind,
    ExchangeBindOk,
    ExchangeDeclare,
    ExchangeDeclareOk,
    QueueBind,
    QueueBindOk,
    QueueDeclare,
    QueueDeclareOk,
)

_NOT_FOUND: Final = 404
_PRECONDITION_FAILED: Final = 406
# Every vhost has its own.
_RESERVED: Final = b"amq."


@dataclass(frozen=True)
class Missing:
    """What is not there."""

    exchanges: list[PutExchange]
    queues: list[PutQueue]


class LiveDefinitions:
    """The definitions of a backup, for one node. Whatever goes wrong is raised as JobError."""

    def __init__(self, uri: str, definitions: Definitions, retry_timeout_s: float) -> None:
        self._address = NodeAddress(uri)
        self._retry = Retry(self._address.where, retry_timeout_s, RETRY_OPTION)
        self._definitions = definitions
        self._connection: AmqpConnection | None = None

    def compare(self) -> Missing:
        """What is missing. JobError when something has the name of another thing; nothing is changed."""
        exchanges = []
        for exchange in self._definitions.exchanges:
            if exchange.name and not exchange.name.startswith(_RESERVED):
                if not self._is_there(
                    ExchangeDeclare(exchange.name, exchange.type, True), ExchangeDeclareOk
                ):
                    exchanges.append(exchange)
                else:
                    self._declare_exchange(exchange)
        queues = []
        for queue in self._definitions.queues:
            is_reserved = queue.name.startswith(_RESERVED)
            if self._is_there(QueueDeclare(queue.name, True), QueueDeclareOk):
                if not is_reserved:
                    self._declare_queue(queue)
                continue
            if is_reserved:
                raise JobError(
                    f"the backup has queue '{queue.name.decode('utf-8', 'replace')}', which is not there, and only a node "
                    "itself gives such names: restore into a new data directory"
                )
            queues.append(queue)
        return Missing(exchanges, queues)

    def declare(self, missing: Missing) -> None:
        """Make what was missing."""
        for exchange in missing.exchanges:
            self._declare_exchange(exchange)
        for queue in missing.queues:
            self._declare_queue(queue)
        # What comes next takes its time.
        self.close()

    def bind(self) -> int:
        """Make all bindings, as far as they are not there; returns how many the backup has."""
        for binding in self._definitions.bindings:
            self._bind(binding)
        return len(self._definitions.bindings)

    def close(self) -> None:
        """End the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _declare_exchange(self, exchange: PutExchange) -> None:
        self._call(
            ExchangeDeclare(
                exchange.name,
                exchange.type,
                False,
                True,
                exchange.auto_delete,
                exchange.internal,
                False,
                exchange.arguments,
            ),
            ExchangeDeclareOk,
        )

    def _declare_queue(self, queue: PutQueue) -> None:
        self._call(
            QueueDeclare(queue.name, False, True, False, queue.auto_delete, False, queue.arguments),
            QueueDeclareOk,
        )

    def _bind(self, binding: PutBinding) -> None:
        names = (binding.destination, binding.source, binding.key, False, binding.arguments)
        if binding.destination_is_queue:
            self._call(QueueBind(*names), QueueBindOk)
        else:
            self._call(ExchangeBind(*names), ExchangeBindOk)

    def _is_there(self, passive: Method, expected: Any) -> bool:
        try:
            self._ask(passive, expected)
        except AmqpRefusedError as error:
            if error.code != _NOT_FOUND:
                raise JobError(error.text) from None
            return False
        return True

    def _call(self, method: Method, expected: Any) -> None:
        try:
            self._ask(method, expected)
        except AmqpRefusedError as error:
            what = (
                "what is there is not what the backup has: "
                if error.code == _PRECONDITION_FAILED
                else ""
            )
            raise JobError(what + error.text) from None

    def _ask(self, method: Method, expected: Any) -> None:
        """The call may be repeated: a declaration of what is there changes nothing."""
        with as_job_error(), self._retry as retry:
            while True:
                try:
                    if self._connection is None:
                        retry.attempt()
                        self._connection = AmqpConnection(self._address, "warren restore", 0)
                        retry.connected()
                    self._connection.call(method, expected)
                    return
                except AmqpRefusedError:
                    # The broker has closed the channel.
                    self._drop()
                    raise
                except AmqpLostError as error:
                    self._drop()
                    retry.failed(error)

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.drop()
            self._connection = None
