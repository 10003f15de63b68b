"""Health checks: 200 with `status` "ok", or 503 with `status` "failed" and the reason."""

from typing import Any, Final

from fastapi import APIRouter

from warrenmq.admin.client.certificates import expiring
from warrenmq.admin.client.critical_queues import critical_queues
from warrenmq.admin.protocol.cluster import (
    ClusterStatus,
    DescribeCluster,
    DescribeMember,
    ListenerStatus,
    MemberDescription,
)
from warrenmq.admin.protocol.control import ControlStatus, DescribeControl
from warrenmq.admin.protocol.watching import Certificates, DescribeCertificates
from warrenmq.management.access import ManagementUser, Monitor
from warrenmq.management.errors import bad_request, not_found
from warrenmq.management.rows import JsonReply
from warrenmq.management.sessions import Caller

router = APIRouter(prefix="/api/health/checks")
old_router = APIRouter(prefix="/api/healthchecks")

# Longest period of the check of certificates (days).
_DAYS_MAX: Final = 100 * 365
# Names of protocols in listeners, by those of RabbitMQ's check.
_PROTOCOLS = {
    "amqp091": "amqp",
    "amqp0.9.1": "amqp",
    "amqp0-9-1": "amqp",
    "amqps": "amqp/ssl",
}


@router.get("/alarms")
def alarms(caller: ManagementUser) -> JsonReply:
    """Whether no node of the cluster has an alarm."""
    return _alarm_check(_cluster(caller).nodes, "There are alarms in effect in the cluster")


@router.get("/local-alarms")
def local_alarms(caller: ManagementUser) -> JsonReply:
    """Whether the node has no alarm."""
    return _alarm_check([_own(caller)], "There are alarms in effect on the node")


@router.get("/port-listener/{port:segment}")
def port_listener(caller: ManagementUser, port: str) -> JsonReply:
    """Whether the node listens on the port."""
    if not port.isascii() or not port.isdecimal():
        raise bad_request("Invalid port")
    ports = [each.port for each in _listeners(caller)]
    if int(port) in ports:
        return _ok(port=int(port))
    return _failed("No active listener", missing=int(port), ports=ports)


@router.get("/protocol-listener/{protocol:segment}")
def protocol_listener(caller: ManagementUser, protocol: str) -> JsonReply:
    """Whether the node has a listener for the protocol."""
    wanted = _PROTOCOLS.get(protocol.lower(), protocol.lower())
    found = sorted({each.protocol for each in _listeners(caller)})
    if wanted in found:
        return _ok(protocol=protocol)
    return _failed("No active listener", missing=protocol, protocols=found)


@router.get("/virtual-hosts")
def virtual_hosts(caller: ManagementUser) -> JsonReply:
    """Whether all vhosts run: a node whose vhost does not start does not start at all."""
    _own(caller)
    return _ok()


@router.get("/ready-to-serve-clients")
def ready_to_serve_clients(caller: ManagementUser) -> JsonReply:
    """Whether the node takes clients."""
    if _own(caller).is_listening:
        return _ok()
    return _failed(
        "node does not take clients: it is in maintenance mode, or its broker is stopped"
    )


@router.get("/node-is-mirror-sync-critical")
def node_is_mirror_sync_critical(caller: Monitor) -> JsonReply:
    """Whether no classic mirrored queue would be lost to its clients without the node."""
    reason = "There are classic mirrored queues without online synchronised mirrors"
    return _critical_check(caller, "classic", reason)


@router.get("/node-is-quorum-critical")
def node_is_quorum_critical(caller: Monitor) -> JsonReply:
    """Whether no quorum queue would be lost to its clients without the node."""
    return _critical_check(caller, "quorum", "There are quorum queues that would lose their quorum")


@router.get("/is-in-service")
def is_in_service(caller: ManagementUser) -> JsonReply:
    """Whether the node is not in maintenance mode."""
    if _own(caller).is_draining:
        return _failed("node is in maintenance mode")
    return _ok()


@router.get("/below-node-connection-limit")
def below_node_connection_limit(caller: Monitor) -> JsonReply:
    """Whether the node takes further connections of clients, as `connection_max` says."""
    status = caller.call(DescribeControl(), ControlStatus)
    current, maximum = status.connections, status.environment["connection_max"]
    limit = "infinity" if maximum < 0 else maximum
    if maximum < 0 or current < maximum:
        return _ok(current=current, limit=limit)
    return _failed("The node takes no more connections", current=current, limit=limit)


# Units of the check of certificates, in days; RabbitMQ's months and years have as many.
_UNITS: Final = {"days": 1, "weeks": 7, "months": 30, "years": 365}


@router.get("/certificate-expiration/{within:segment}/{unit:segment}")
def certificate_expiration(caller: ManagementUser, within: str, unit: str) -> JsonReply:
    """Whether no certificate of a TLS listener expires within so many days, weeks and so on."""
    if not within.isascii() or not within.isdecimal():
        raise bad_request("Invalid expiration value.")
    if unit not in _UNITS:
        raise bad_request(f"Time unit not recognised. Supported units: {', '.join(_UNITS)}.")
    listeners = caller.call(DescribeCertificates(), Certificates).listeners
    days = min(int(within) * _UNITS[unit], _DAYS_MAX)
    expired = [
        {
            "interface": each.interface or "::",
            "node": caller.description.node,
            "port": str(each.port),
            "protocol": each.protocol,
            "reason": found,
        }
        for each in listeners
        if (found := ", ".join(expiring([each], days)))
    ]
    return _failed("Certificates expiring", expired=expired) if expired else _ok()


@old_router.get("/node")
def node_check(caller: ManagementUser) -> JsonReply:
    """Whether the asked node has no alarm; monitors of RabbitMQ before 3.8 ask this."""
    return _alarm_check([_own(caller)], "resource alarm(s) in effect")


@old_router.get("/node/{name:segment}")
def check_of_node(caller: ManagementUser, name: str) -> JsonReply:
    """Whether a node of the cluster has no alarm."""
    found = [node for node in _cluster(caller).nodes if node.node == name]
    if not found:
        raise not_found()
    return _alarm_check(found, "resource alarm(s) in effect")


def _critical_check(caller: Caller, kind: str, reason: str) -> JsonReply:
    if not _cluster(caller).cluster:
        return _ok(reason="single node cluster")
    with caller.session() as call:
        found = critical_queues(call, kind)
    if not found:
        return _ok()
    rows = [{"name": name, "vhost": vhost, "type": kind} for vhost, name in found]
    return _failed(reason, queues=rows)


def _cluster(caller: Caller) -> ClusterStatus:
    return caller.call(DescribeCluster(), ClusterStatus)


def _listeners(caller: Caller) -> list[ListenerStatus]:
    """The listeners of the node that was asked, with the one for other nodes."""
    cluster = _cluster(caller)
    return [each for node in cluster.nodes if node.node == cluster.node for each in node.listeners]


def _own(caller: Caller) -> MemberDescription:
    """The node that was asked, as it knows itself: etcd and other nodes are not asked.

    A supervisor that asks often must not restart nodes because etcd is away.
    """
    return caller.call(DescribeMember(), MemberDescription)


def _alarm_check(nodes: list[MemberDescription], reason: str) -> JsonReply:
    found = [{"node": node.node, "resource": name} for node in nodes for name in node.alarms]
    return _failed(reason, alarms=found) if found else _ok()


def _ok(**fields: Any) -> JsonReply:
    return JsonReply({"status": "ok", **fields})


def _failed(reason: str, **fields: Any) -> JsonReply:
    return JsonReply({"status": "failed", "reason": reason, **fields}, 503)
