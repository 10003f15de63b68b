"""The definitions of a vhost of a cluster, for the backup of one node.

They are in etcd. The node's directory has its queues only, with the ids that its store knows them
by, so everything else comes from an export of the running node (`warrenctl export_definitions`).
"""

from pathlib import Path
from typing import Final

from warrenmq.admin.client.client import AdminClient
from warrenmq.admin.definitions import conversion
from warrenmq.admin.definitions.document import DefinitionsError, Document, parse_document
from warrenmq.admin.protocol import control
from warrenmq.admin.protocol.cluster import ClusterStatus, DescribeCluster
from warrenmq.broker.definitions.metadata import Definitions
from warrenmq.offline.data_directory import ToolError
from warrenmq.routing.router import PREDECLARED

MISSING: Final = (
    "exchanges, bindings and users: the directory is of a node of a cluster, which has them in "
    "etcd; give an export of them with --definitions"
)


def export_of(client: AdminClient) -> bytes:
    """The definitions of a running node as JSON; empty if it runs alone, and has its own."""
    if not client.request(DescribeCluster(), ClusterStatus).cluster:
        return b""
    return client.request(control.ExportDefinitions(), control.Exported).json


def read_export(path: Path) -> Document:
    """The definitions in a file of JSON. Raises ToolError."""
    try:
        return parse_document(path.read_bytes())
    except OSError as error:
        raise ToolError(f"{path}: {error.strerror}") from None
    except DefinitionsError as error:
        raise ToolError(f"{path}: {error}") from None


def completed(own: Definitions, export: Document, vhost: str, left_out: list[str]) -> Definitions:
    """`vhost` with the queues of `own`, and its users, exchanges and bindings of `export`.

    Bindings of queues that the node does not have are left out without a word. What this version
    cannot declare is added to `left_out`, in words.
    """
    name = vhost.encode()
    found = Definitions()
    found.vhosts = [each for each in own.vhosts if each.name == name]
    found.queues = [each for each in own.queues if each.vhost == name]
    found.queue_parts = [each for each in own.queue_parts if each.vhost == name]
    entering = {each.user for each in export.permissions if each.vhost == vhost}
    try:
        found.users = [
            conversion.user_of(each, export.version)
            for each in export.users
            if each.name in entering
        ]
        found.permissions = [
            conversion.permission_of(each, vhost)
            for each in export.permissions
            if each.vhost == vhost
        ]
        _add_routes(found, export, vhost, left_out)
    except DefinitionsError as error:
        raise ToolError(f"the export of the definitions: {error}") from None
    return found


def _add_routes(found: Definitions, export: Document, vhost: str, left_out: list[str]) -> None:
    """Add the durable exchanges of `vhost`, and the bindings between what is in `found`."""
    for row in export.exchanges:
        if row.vhost == vhost and row.durable:
            try:
                found.exchanges.append(conversion.exchange_of(row, vhost, left_out))
            except conversion.LeftOut as error:
                left_out.append(str(error))
    exchanges = {each.name for each in found.exchanges} | {name for name, _, _ in PREDECLARED}
    queues = {each.name for each in found.queues}
    for each in export.bindings:
        if each.vhost != vhost or not each.source:
            continue
        binding = conversion.binding_of(each, vhost, left_out)
        ends = queues if binding.destination_is_queue else exchanges
        if binding.source in exchanges and binding.destination in ends:
            found.bindings.append(binding)
