"""The nodes of the cluster."""

from typing import Final

from fastapi import APIRouter, Request
from starlette.responses import Response

from warrenmq.admin.client.client import AdminRefusedError
from warrenmq.admin.protocol.cluster import ClusterStatus, DescribeCluster, MemberDescription
from warrenmq.admin.protocol.control import ControlStatus, DescribeControl
from warrenmq.admin.protocol.mirrors import MasterCounts, RebalanceQueues
from warrenmq.management.access import Administrator, Monitor
from warrenmq.management.objects.listings import named
from warrenmq.management.rows import ListReply, ObjectReply, Row, listed, single
from warrenmq.management.sessions import Call, Caller, refusal
from warrenmq.management.shown import FiguresOf, statistics_of
from warrenmq.vocabulary.error_codes import UNREACHABLE

router = APIRouter(prefix="/api")

AUTH_MECHANISMS: Final = ("PLAIN", "AMQPLAIN", "EXTERNAL")


@router.get("/nodes")
def all_nodes(request: Request, caller: Monitor, shown: FiguresOf) -> ListReply:
    """The members of the cluster; memory, disk and files of those that answer."""
    return listed(request, nodes(caller), show=shown.node)


@router.get("/nodes/{name:segment}")
def one_node(request: Request, caller: Monitor, shown: FiguresOf, name: str) -> ObjectReply:
    """One node; `memory=true` adds its memory by use."""
    row = shown.node(named(nodes(caller), name))
    if request.query_params.get("memory") == "true":
        row["memory"] = _memory(caller, name)
    return single(request, row)


@router.get("/nodes/{name:segment}/memory")
def memory_of_node(request: Request, caller: Monitor, name: str) -> ObjectReply:
    """The memory of a node by its use, in bytes."""
    named(nodes(caller), name)
    return single(request, {"memory": _memory(caller, name)})


@router.get("/nodes/{name:segment}/memory/relative")
def relative_memory_of_node(request: Request, caller: Monitor, name: str) -> ObjectReply:
    """The memory of a node by its use, in percent of all of it, rounded up."""
    named(nodes(caller), name)
    memory = _memory(caller, name)
    if isinstance(memory, dict):
        whole = max(1, memory.pop("total")["rss"])
        del memory["strategy"]
        shares = {use: -(-size * 100 // whole) for use, size in memory.items()}
        memory = {"total": 100, **shares}
    return single(request, {"memory": memory})


@router.get("/nodes/{name:segment}/memory/ets/{table:segment}/relative")
@router.get("/nodes/{name:segment}/memory/ets/{table:segment}")
@router.get("/nodes/{name:segment}/memory/ets/relative")
@router.get("/nodes/{name:segment}/memory/ets")
def tables_of_node(request: Request, caller: Monitor, name: str) -> ObjectReply:
    """The memory of Erlang's tables: there are none."""
    named(nodes(caller), name)
    return single(request, {"ets_tables_memory": "no_tables"})


def _memory(caller: Caller, name: str) -> Row | str:
    """The memory of a node by its use; "not_available" of one that does not answer."""
    with caller.session() as call:
        status = _process_of(call, name)
    if status is None:
        return "not_available"
    used = status.memory_used_bytes or 0
    other = max(0, used - sum(status.memory.values()))
    total = {"erlang": used, "rss": used, "allocated": used}
    return {**status.memory, "other_proc": other, "total": total, "strategy": "rss"}


def nodes(caller: Caller) -> list[Row]:
    """The members of the cluster, running or not."""
    with caller.session() as call:
        cluster = call(DescribeCluster(), ClusterStatus)
        described = {node.node: node for node in cluster.nodes}
        # A node that has not answered would let the caller wait again.
        processes = {
            name: _process_of(call, name) for name, node in described.items() if node.is_reachable
        }
    rows = []
    for name in sorted({*cluster.members, *cluster.running}):
        row: Row = {"name": name, "type": "disc", "running": name in cluster.running}
        if name in described:
            row |= _member(described[name], cluster)
        status = processes.get(name)
        if status is not None:
            row |= _process(status)
        rows.append(row)
    return rows


def _process_of(call: Call, node: str) -> ControlStatus | None:
    """The process of a node, None if it does not answer. Raises HttpRefusal."""
    try:
        return call.client.request(DescribeControl(node=node), ControlStatus)
    except AdminRefusedError as error:
        if error.code == UNREACHABLE:
            return None
        raise refusal(error) from None


def _member(node: MemberDescription, cluster: ClusterStatus) -> Row:
    return {
        "partitions": cluster.partitions.get(node.node, []),
        "mem_alarm": "memory" in node.alarms,
        "disk_free_alarm": "disk" in node.alarms,
        "being_drained": node.is_draining,
        "warren_version": node.version,
        "cluster_links": [
            {"name": link.node, "peer_name": link.node, "stats": {"send_pend": link.unsent_bytes}}
            for link in node.links
        ],
        "applications": [],
        "enabled_plugins": [],
        "auth_mechanisms": [{"name": name, "enabled": True} for name in AUTH_MECHANISMS],
    }


def _process(status: ControlStatus) -> Row:
    return {
        "uptime": status.uptime_ms,
        "os_pid": str(status.pid),
        "fd_used": status.open_files,
        "fd_total": status.open_files_max,
        "sockets_used": status.sockets,
        "sockets_total": status.open_files_max,
        "mem_used": status.memory_used_bytes or 0,
        "mem_limit": status.memory_limit_bytes,
        "mem_calculation_strategy": "rss",
        "disk_free": status.disk_free_bytes or 0,
        "disk_free_limit": status.disk_limit_bytes,
        "config_files": status.config_files,
        "log_files": status.log_files,
        "db_dir": status.data_directory,
    }


@router.post("/rebalance/queues")
def rebalance_queues(caller: Administrator) -> Response:
    """Spread the masters of mirrored queues evenly over the nodes; a lone node is done."""
    if caller.call(DescribeCluster(), ClusterStatus).cluster:
        caller.call(RebalanceQueues(), MasterCounts)
    return Response(status_code=204)


@router.delete("/reset")
def reset_all(request: Request, _caller: Administrator) -> Response:
    """Forget the rates and samples of all nodes; counters stay as they are."""
    statistics_of(request).clear()
    return Response(status_code=204)


@router.delete("/reset/{name:segment}")
def reset_node(request: Request, caller: Administrator, name: str) -> Response:
    """Forget the rates and samples of one node."""
    named(nodes(caller), name)
    statistics_of(request).clear(name)
    return Response(status_code=204)
