"""`declare` and `plan`, on whatever leads to a broker.

A target is a pika `BlockingConnection` or `BlockingChannel`, a URI (`amqp://` or `amqps://`, with
the parameters that all commands of warren take), or, for the async functions, a connection or a
channel of aio-pika. Only the clients that a target needs are imported.
"""

from __future__ import annotations

import sys
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar

from warrenmq.topology.declaring import Declared, declaring
from warrenmq.topology.planning import Plan, compared, probing
from warrenmq.topology.requests import Refused, Request
from warrenmq.topology.topology import Topology

if TYPE_CHECKING:
    from aio_pika.abc import AbstractChannel, AbstractConnection
    from pika import BlockingConnection
    from pika.adapters.blocking_connection import BlockingChannel

    from warrenmq.topology.aio_pika_link import AioPikaLink
    from warrenmq.topology.pika_link import PikaLink

    Target: TypeAlias = BlockingConnection | BlockingChannel | str
    AsyncTarget: TypeAlias = AbstractConnection | AbstractChannel

Result = TypeVar("Result")
_ONLY_AMQP: Final = "AMQP tells only whether an exchange or a queue exists"


def declare(topology: Topology, target: Target) -> Declared:
    """Declare everything in `topology`; what the broker has already stays as it is.

    Raises DeclarationRefusedError, which says what was declared before it; ConnectionError when
    there is no broker at a URI; ValueError for an exclusive queue at a URI. Errors of a connection
    that breaks are those of the client. A refusal closes no channel of the caller; a few (an
    unknown type of exchange) close the connection.
    """
    if isinstance(target, str):
        _check_no_exclusive(topology)
    with _pika_link(target) as link:
        return _run(declaring(topology), link)


def plan(topology: Topology, target: Target) -> Plan:
    """The plan of what `declare` would change at `target`; changes nothing itself.

    At the URI of a warren node, for a user with the tag `management`, everything is compared.
    Elsewhere only the existence of exchanges and queues is known. Raises what `declare` raises.
    """
    why = _ONLY_AMQP
    if isinstance(target, str):
        _check_no_exclusive(topology)
        found = _plan_of_node(topology, target)
        if isinstance(found, Plan):
            return found
        why = found
    with _pika_link(target) as link:
        return _run(probing(topology, why), link)


async def declare_async(topology: Topology, target: AsyncTarget) -> Declared:
    """As `declare`, on a connection of aio-pika."""
    from warrenmq.topology.aio_pika_link import link_to

    async with await link_to(target) as link:
        return await _run_async(declaring(topology), link)


async def plan_async(topology: Topology, target: AsyncTarget) -> Plan:
    """As `plan`, on a connection of aio-pika."""
    from warrenmq.topology.aio_pika_link import link_to

    async with await link_to(target) as link:
        return await _run_async(probing(topology, _ONLY_AMQP), link)


def _plan_of_node(topology: Topology, uri: str) -> Plan | str:
    """The plan for a warren node, or the reason why the node shows nothing."""
    from warrenmq.admin.client.client import (
        AdminClient,
        AdminRefusedError,
        NodeAddress,
        NodeUnreachableError,
        TlsRefusedError,
    )
    from warrenmq.topology.node_listings import read_existing

    address = NodeAddress(uri)
    try:
        with AdminClient(address, "topology") as client:
            return compared(topology, read_existing(client, address.vhost))
    except AdminRefusedError as error:
        return error.text
    except TlsRefusedError as error:
        raise ConnectionError(str(error)) from None
    except NodeUnreachableError:
        # Another broker answers with AMQP's header and closes the connection, which may reset it
        # before the header arrives. A broker that is away is found out by the plain connection.
        return _ONLY_AMQP


def _check_no_exclusive(topology: Topology) -> None:
    for queue in topology.queues:
        if queue.exclusive:
            raise ValueError(
                f"{queue} is exclusive: it would be deleted together with the connection to the URI"
            )


@contextmanager
def _pika_link(target: Target) -> Iterator[PikaLink]:
    """A link over the caller's connection, or over one of our own for the time of the block."""
    if not isinstance(target, str):
        callers = _pika_connection(target)
        from warrenmq.topology.pika_link import PikaLink

        with PikaLink(callers) as link:
            yield link
        return
    try:
        from warrenmq.topology.pika_link import PikaLink, connect
    except ModuleNotFoundError as error:
        raise ImportError(
            f"a URI needs {error.name}: install warrenmq[topology], or pass a connection"
        ) from None
    connection = connect(target)
    try:
        with PikaLink(connection) as link:
            yield link
    finally:
        if connection.is_open:
            connection.close()


def _pika_connection(target: object) -> BlockingConnection:
    """The connection of a target of `declare`, which only exists if its module is loaded."""
    module = sys.modules.get("pika.adapters.blocking_connection")
    if module is not None and isinstance(target, module.BlockingChannel):
        return target.connection
    if module is not None and isinstance(target, module.BlockingConnection):
        return target
    raise TypeError(f"{target!r} is no blocking connection or channel of pika, and no URI")


def _run(steps: Generator[Request, str, Result], link: PikaLink) -> Result:
    try:
        request = next(steps)
        while True:
            try:
                answer = link.ask(request)
            except Refused as refused:
                request = steps.throw(refused)
            else:
                request = steps.send(answer)
    except StopIteration as end:
        result: Result = end.value
        return result


async def _run_async(steps: Generator[Request, str, Result], link: AioPikaLink) -> Result:
    try:
        request = next(steps)
        while True:
            try:
                answer = await link.ask(request)
            except Refused as refused:
                request = steps.throw(refused)
            else:
                request = steps.send(answer)
    except StopIteration as end:
        result: Result = end.value
        return result
