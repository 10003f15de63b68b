"""Asks a node, in a session of a monitor, for all that a page of metrics shows, and no more."""

from typing import Any, Literal, NamedTuple

from warrenmq.admin.client.client import AdminClient, AdminRefusedError
from warrenmq.admin.protocol.control import (
    ControlStatus,
    DescribeControl,
    DescribeUser,
    List,
    Rows,
    UserDescription,
)
from warrenmq.admin.protocol.figures import DescribeNode, NodeStatus
from warrenmq.admin.protocol.mirrors import DescribeMirrors, MirrorStatus
from warrenmq.management.prometheus.node import NodeReading
from warrenmq.vocabulary.error_codes import NO_SUCH_VHOST, NOT_FOUND, NOT_MIRRORED

# Listings that metrics need.
Listing = Literal["auth_attempts", "bindings", "channels", "connections", "exchanges", "queues"]


class Table(NamedTuple):
    """Rows of a listing, each with the values of `columns` in their order."""

    columns: list[str]
    rows: list[list[Any]]

    def column(self, name: str) -> list[Any]:
        """The values of a column, by row."""
        place = self.columns.index(name)
        return [row[place] for row in self.rows]

    def texts(self, names: tuple[str, ...]) -> list[tuple[str, ...]]:
        """The values of some columns as texts, by row."""
        return list(zip(*(map(str, self.column(name)) for name in names), strict=True))


def read_node(client: AdminClient) -> NodeReading:
    """The process, its figures and its stores."""
    cluster = client.request(DescribeUser(), UserDescription).cluster_name
    control = client.request(DescribeControl(), ControlStatus)
    return NodeReading(cluster, control, client.request(DescribeNode(), NodeStatus))


def read_table(client: AdminClient, what: Listing, columns: list[str], vhost: str = "") -> Table:
    """A listing of this node alone; without rows if the vhost is gone."""
    request = List(what=what, columns=columns, vhost=vhost, which="local")
    try:
        rows = client.request(request, Rows)
    except AdminRefusedError as refusal:
        if refusal.code == NO_SUCH_VHOST:
            return Table(columns, [])
        raise
    return Table(columns, rows.rows)


def read_vhosts(client: AdminClient, what: Listing, columns: list[str], vhosts: list[str]) -> Table:
    """The listings of all of `vhosts` in one table."""
    tables = [read_table(client, what, columns, vhost) for vhost in vhosts]
    return Table(columns, [row for table in tables for row in table.rows])


def read_mirrors(client: AdminClient, queues: Table) -> list[MirrorStatus]:
    """The copies of those of `queues` (with columns name, vhost, slave_nodes) that have mirrors.

    A queue that is deleted meanwhile, or loses its mirrors, is left out.
    """
    found = []
    columns = (queues.column(name) for name in ("vhost", "name", "slave_nodes"))
    for vhost, name, mirrors in zip(*columns, strict=True):
        if mirrors:
            request = DescribeMirrors(vhost=vhost, queue=name.encode())
            try:
                found.append(client.request(request, MirrorStatus))
            except AdminRefusedError as refusal:
                if refusal.code not in (NOT_FOUND, NOT_MIRRORED, NO_SUCH_VHOST):
                    raise
    return found
