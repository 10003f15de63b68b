"""Compares the definitions of a backup with a running node's vhost, and declares missing ones.

Declarations over AMQP also do the comparison: to declare an object that exists changes nothing, or
is refused with the difference.
"""

from dataclasses import dataclass
from typing import Any, Final

from warrenmq.admin.client.client import NodeAddress
from warrenmq.broker.definitions.metadata import Definitions, PutBinding, PutExchange, PutQueue
from warrenmq.pipeline.broker import RETRY_OPTION, as_job_error
from warrenmq.pipeline.result import JobError
from warrenmq.spark.amqp.connection import AmqpConnection, AmqpLostError, AmqpRefusedError
from warrenmq.spark.retry import Retry
from warrenmq.wire import methods
from warrenmq.wire.method import Method

_NOT_FOUND: Final = 404
_PRECONDITION_FAILED: Final = 406
# Prefix of names that only a node gives out; each vhost has its own such objects.
_RESERVED: Final = b"amq."


@dataclass(frozen=True)
class Missing:
    """The durable exchanges and queues that the vhost lacks."""

    exchanges: list[PutExchange]
    queues: list[PutQueue]


class LiveDefinitions:
    """The definitions of a backup, for one node. All errors are raised as JobError."""

    def __init__(self, uri: str, definitions: Definitions, retry_timeout_s: float) -> None:
        self._address = NodeAddress(uri)
        self._retry = Retry(self._address.where, retry_timeout_s, RETRY_OPTION)
        self._definitions = definitions
        self._connection: AmqpConnection | None = None

    def compare(self) -> Missing:
        """Find what is missing; changes nothing. JobError when an object is defined otherwise."""
        exchanges = []
        for exchange in self._definitions.exchanges:
            if exchange.name and not exchange.name.startswith(_RESERVED):
                if not self._is_there(
                    methods.ExchangeDeclare(exchange.name, exchange.type, True),
                    methods.ExchangeDeclareOk,
                ):
                    exchanges.append(exchange)
                else:
                    self._declare_exchange(exchange)
        queues = []
        for queue in self._definitions.queues:
            is_reserved = queue.name.startswith(_RESERVED)
            if self._is_there(methods.QueueDeclare(queue.name, True), methods.QueueDeclareOk):
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
        """Declare the missing exchanges and queues."""
        for exchange in missing.exchanges:
            self._declare_exchange(exchange)
        for queue in missing.queues:
            self._declare_queue(queue)
        # Close the connection, since the messages are restored next, which takes long.
        self.close()

    def bind(self) -> int:
        """Declare all bindings; existing ones stay. Returns how many the backup has."""
        for binding in self._definitions.bindings:
            self._bind(binding)
        return len(self._definitions.bindings)

    def close(self) -> None:
        """Close the connection if it is open."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _declare_exchange(self, exchange: PutExchange) -> None:
        self._call(
            methods.ExchangeDeclare(
                exchange.name,
                exchange.type,
                False,
                True,
                exchange.auto_delete,
                exchange.internal,
                False,
                exchange.arguments,
            ),
            methods.ExchangeDeclareOk,
        )

    def _declare_queue(self, queue: PutQueue) -> None:
        self._call(
            methods.QueueDeclare(
                queue.name, False, True, False, queue.auto_delete, False, queue.arguments
            ),
            methods.QueueDeclareOk,
        )

    def _bind(self, binding: PutBinding) -> None:
        names = (binding.destination, binding.source, binding.key, False, binding.arguments)
        if binding.destination_is_queue:
            self._call(methods.QueueBind(*names), methods.QueueBindOk)
        else:
            self._call(methods.ExchangeBind(*names), methods.ExchangeBindOk)

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
                "the broker's definition differs from the backup's: "
                if error.code == _PRECONDITION_FAILED
                else ""
            )
            raise JobError(what + error.text) from None

    def _ask(self, method: Method, expected: Any) -> None:
        """Call a method, again after a lost connection: repeated declarations change nothing."""
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
                    # The broker has closed the channel, so the connection is of no more use.
                    self._drop()
                    raise
                except AmqpLostError as error:
                    self._drop()
                    retry.failed(error)

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.drop()
            self._connection = None
