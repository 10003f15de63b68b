"""The firehose of a vhost: switches tracing on, takes the copies, switches it off again.

The copies go to an exclusive queue, which ends with its connection, however this process ends.
Tracing is a setting of the vhost and does not. The run that has switched it on switches it off,
unless another such run goes on: that one does it then. The queue's name says which runs these are.
Tracing that somebody has switched on before stays on.

A queue that grows faster than its copies are read would take the node's memory, so that the run
ends before (`check_backlog`). The queue has a limit of twice that, and drops copies then.
"""

import contextlib
import secrets
from types import TracebackType
from typing import Final, Self

from warrenmq.admin.client.client import (
    AdminClient,
    AdminRefusedError,
    NodeAddress,
    NodeUnreachableError,
)
from warrenmq.admin.protocol.control import Done, List, Rows, SetTracing
from warrenmq.admin.protocol.figures import ListQueues, QueueList
from warrenmq.broker.channel.tracing import TRACE_EXCHANGE
from warrenmq.spark.amqp.connection import (
    AmqpConnection,
    AmqpLostError,
    AmqpRefusedError,
    Delivery,
)
from warrenmq.wire import methods
from warrenmq.wire.field_table import encode_table, fields_from_python

_PURPOSE: Final = "warren trace"
# Names of the queues of runs that switch tracing off, and of the others.
_SWITCHING: Final = "warren.trace.switching."
_WATCHING: Final = "warren.trace.watching."
_HEARTBEAT_S: Final = 30
# Copies that wait for this process, and bytes of their bodies, at which a run ends.
BACKLOG_MESSAGES: Final = 10_000
BACKLOG_BYTES: Final = 32 * 1024 * 1024


class TraceError(Exception):
    """The trace cannot begin or go on; one line says why."""


class Firehose:
    """The copies of a vhost's messages, from `begin` to `__exit__`.

    `amqp` is where to consume them, `admin` where to switch tracing and ask for the backlog; `keys`
    are the patterns of the copies. All methods raise TraceError, `__exit__` when tracing could not
    be switched off. Whatever ends the process before `begin` leaves nothing behind.
    """

    def __init__(self, amqp: NodeAddress, admin: NodeAddress, keys: list[bytes]) -> None:
        self._amqp_address = amqp
        self._admin_address = admin
        self._keys = keys
        self.vhost = amqp.vhost
        # Whether tracing was off before, or another run that is going on has switched it on.
        self.switches = False
        self._has_switched = False
        self._queue = ""
        self._queue_id = 0
        self._connection: AmqpConnection | None = None
        self._admin: AdminClient | None = None

    def __enter__(self) -> Self:
        try:
            self._open()
        except (AdminRefusedError, AmqpRefusedError, AmqpLostError, NodeUnreachableError) as error:
            self._close()
            raise TraceError(str(error)) from None
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._close()

    def begin(self) -> None:
        """Switch tracing on, if it is off."""
        if self.switches:
            self._has_switched = True
            try:
                self._set_tracing(True)
            except (AdminRefusedError, NodeUnreachableError) as error:
                raise TraceError(str(error)) from None

    def next(self, wait_s: float) -> Delivery | None:
        """The next copy; None when none comes within `wait_s`. Raises TraceError."""
        assert self._connection is not None
        try:
            event = self._connection.next_event()
            if event is None and self._connection.wait(wait_s):
                event = self._connection.next_event()
        except (AmqpLostError, AmqpRefusedError) as error:
            raise TraceError(str(error)) from None
        if isinstance(event, methods.BasicCancel):
            raise TraceError(f"somebody has deleted the queue '{self._queue}' of the trace")
        return event if isinstance(event, Delivery) else None

    def check_backlog(self) -> None:
        """Raise TraceError when copies come faster than they are read, or were dropped."""
        assert self._admin is not None
        try:
            # Ids ascend, and this one is of the same node.
            found = self._admin.request(ListQueues(self._queue_id - 1, 1), QueueList).queues
        except (AdminRefusedError, NodeUnreachableError) as error:
            raise TraceError(str(error)) from None
        for queue in found:
            dropped = queue.published - queue.delivered - queue.ready
            if dropped or queue.ready > BACKLOG_MESSAGES or (queue.body_bytes or 0) > BACKLOG_BYTES:
                raise TraceError(
                    f"events come faster than they are read: {queue.ready} wait, {dropped} are lost; "
                    "ask for less with --exchange, --queue or --events"
                )

    def _open(self) -> None:
        self._admin = AdminClient(self._admin_address, _PURPOSE)
        self.switches = not self._is_tracing() or bool(self._other_switching())
        self._queue = (_SWITCHING if self.switches else _WATCHING) + secrets.token_hex(8)
        self._connection = connection = AmqpConnection(self._amqp_address, _PURPOSE, _HEARTBEAT_S)
        name = self._queue.encode()
        limits: dict[str, object] = {
            "x-max-length": 2 * BACKLOG_MESSAGES,
            "x-max-length-bytes": 2 * BACKLOG_BYTES,
        }
        arguments = encode_table(fields_from_python(limits))
        declare = methods.QueueDeclare(name, exclusive=True, arguments=arguments)
        connection.call(declare, methods.QueueDeclareOk)
        for key in self._keys:
            connection.call(methods.QueueBind(name, TRACE_EXCHANGE, key), methods.QueueBindOk)
        connection.call(methods.BasicConsume(name, no_ack=True), methods.BasicConsumeOk)
        request = List(what="queues", columns=["id"], vhost=self.vhost, names=[self._queue])
        self._queue_id = self._admin.request(request, Rows).rows[0][0]

    def _is_tracing(self) -> bool:
        assert self._admin is not None
        request = List(what="vhosts", columns=["name", "tracing"])
        return (self.vhost, True) in map(tuple, self._admin.request(request, Rows).rows)

    def _set_tracing(self, is_on: bool) -> None:
        assert self._admin is not None
        self._admin.request(SetTracing(vhost=self.vhost, is_on=is_on), Done)

    def _other_switching(self) -> list[str]:
        """Queues of runs that switch tracing off, without the one of this run."""
        assert self._admin is not None
        exchange = TRACE_EXCHANGE.decode()
        request = List(
            what="bindings", columns=["destination_name"], vhost=self.vhost, names=[exchange]
        )
        names = [row[0] for row in self._admin.request(request, Rows).rows]
        return [name for name in names if name.startswith(_SWITCHING) and name != self._queue]

    def _close(self) -> None:
        """End the queue, then tracing: of two runs that end together, one finds no other queue."""
        if self._connection is not None:
            with contextlib.suppress(AmqpLostError, AmqpRefusedError):
                delete = methods.QueueDelete(self._queue.encode())
                self._connection.call(delete, methods.QueueDeleteOk)
            self._connection.close()
        try:
            if self._has_switched:
                self._switch_off()
        finally:
            if self._admin is not None:
                self._admin.close()

    def _switch_off(self) -> None:
        # A session of its own: the node may have closed the first one, or restarted.
        try:
            if self._admin is not None:
                self._admin.close()
            self._admin = AdminClient(self._admin_address, _PURPOSE)
            if not self._other_switching():
                self._set_tracing(False)
        except (AdminRefusedError, NodeUnreachableError) as error:
            raise TraceError(
                f"tracing of vhost '{self.vhost}' may be on still ({error}): "
                f"warrenctl trace_off -p '{self.vhost}'"
            ) from None
