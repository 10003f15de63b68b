"""Asks a node, in a session of a monitor, for all that a page of metrics shows, and no more."""

from typing import Literal

from warrenmq.admin.client.client import AdminClient, AdminRefusedError
from warrenmq.admin.protocol.control import ControlStatus, DescribeControl, List, Rows
from warrenmq.admin.protocol.figures import DescribeNode, NodeStatus
from warrenmq.admin.protocol.mirrors import DescribeMirrors, MirrorStatus
from warrenmq.management.prometheus.node import NodeReading
from warrenmq.management.prometheus.objects import Row
from warrenmq.vocabulary.error_codes import NO_SUCH_VHOST, NOT_FOUND, NOT_MIRRORED

# Listings that metrics need.
Listing = Literal["auth_attempts", "bindings", "channels", "connections", "exchanges", "queues"]


def read_node(client: AdminClient) -> NodeReading:
    """The process, its figures and its stores."""
    control = client.request(DescribeControl(), ControlStatus)
    return NodeReading(control, client.request(DescribeNode(), NodeStatus))


def read_rows(client: AdminClient, what: Listing, columns: list[str], vhost: str = "") -> list[Row]:
    """The rows of a listing of this node alone, by their columns; none if the vhost is gone."""
    request = List(what=what, columns=columns, vhost=vhost, which="local")
    try:
        rows = client.request(request, Rows)
    except AdminRefusedError as refusal:
        if refusal.code == NO_SUCH_VHOST:
            return []
        raise
    return [dict(zip(columns, row, strict=True)) for row in rows.rows]


def read_mirrors(client: AdminClient, queues: list[Row]) -> list[MirrorStatus]:
    """The copies of those of `queues` (with columns name, vhost, slave_nodes) that have mirrors.

    A queue that is deleted meanwhile, or loses its mirrors, is left out.
    """
    found = []
    for row in queues:
        if row["slave_nodes"]:
            request = DescribeMirrors(vhost=row["vhost"], queue=row["name"].encode())
            try:
                found.append(client.request(request, MirrorStatus))
            except AdminRefusedError as refusal:
                if refusal.code not in (NOT_FOUND, NOT_MIRRORED, NO_SUCH_VHOST):
                    raise
    return found
