"""The topology of a vhost of a warren node, from the listings of the admin protocol."""

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from warrenmq.admin.client.client import AdminClient
from warrenmq.admin.protocol.control import List, Rows
from warrenmq.topology.arguments import ArgumentValue
from warrenmq.topology.planning import Existing, ExistingExchange, ExistingQueue


def read_existing(client: AdminClient, vhost: str) -> Existing:
    """All exchanges, queues and bindings of `vhost`.

    Raises AdminRefusedError and NodeUnreachableError; the user needs the tag `management`.
    """
    exchanges = _rows(
        client,
        "exchanges",
        vhost,
        "name",
        "type",
        "durable",
        "auto_delete",
        "internal",
        "arguments",
    )
    queues = _rows(
        client, "queues", vhost, "name", "durable", "auto_delete", "exclusive", "arguments"
    )
    bindings: defaultdict[tuple[str, str, str, str], list[Mapping[str, ArgumentValue]]]
    bindings = defaultdict(list)
    for *ends, arguments in _rows(
        client, "bindings", vhost,
        "source_name", "destination_kind", "destination_name", "routing_key", "arguments",
    ):  # fmt: skip
        source, kind, destination, key = ends
        bindings[source, kind, destination, key].append(arguments)
    return Existing(
        {name: ExistingExchange(*attributes) for name, *attributes in exchanges},
        {
            # Quorum queues are never exclusive; their column is empty.
            name: ExistingQueue(durable, auto_delete, bool(exclusive), arguments)
            for name, durable, auto_delete, exclusive, arguments in queues
        },
        bindings,
    )


def _rows(client: AdminClient, what: Any, vhost: str, *columns: str) -> list[list[Any]]:
    return client.request(List(what=what, columns=list(columns), vhost=vhost), Rows).rows
