"""Maintenance of nodes: what it would move, and its begin and end; moves of masters."""

from typing import Final

import msgspec
from fastapi import APIRouter, Request
from starlette.responses import Response

from warrenmq.admin.protocol.cluster import ClusterStatus, DescribeCluster, SetDraining
from warrenmq.admin.protocol.control import Done
from warrenmq.admin.protocol.mirrors import MasterMoves, PlanRebalance
from warrenmq.management.access import Administrator, Monitor
from warrenmq.management.errors import HttpRefusal, not_found
from warrenmq.management.objects.connections import connections
from warrenmq.management.objects.queue_copies import mirrors_in_sync, queue_copies
from warrenmq.management.recent_listings import recent
from warrenmq.management.rows import ObjectReply, Row, single
from warrenmq.management.sessions import Caller

router = APIRouter(prefix="/api/warren")

_SILENT: Final = 503


@router.get("/nodes/{name:segment}/drain")
def plan_drain(request: Request, caller: Monitor, name: str) -> ObjectReply:
    """What maintenance of a node means: clients that are closed, masters that move, queues left.

    A master moves to a mirror in sync; the queues in `staying` have none on another node. Exclusive
    queues, which go with their connections, are in neither.
    """
    cluster = _with_member(caller, name)
    if name not in cluster.running:
        raise HttpRefusal(_SILENT, "service_unavailable", f"node {name} does not run")
    draining = {node.node for node in cluster.nodes if node.is_draining}
    moves: list[Row] = []
    staying: list[Row] = []
    for row in queue_copies(caller, recent(request)):
        if row["node"] != name or row["state"] == "down" or row["exclusive"]:
            continue
        queue = {"vhost": row["vhost"], "name": row["name"]}
        targets = [node for node in mirrors_in_sync(row) if node not in draining]
        if targets:
            moves.append({**queue, "source": name, "target": targets[0]})
        else:
            staying.append({**queue, "is_mirrored": row["slave_nodes"] is not None})
    clients = [
        {key: row.get(key) for key in ("name", "user", "vhost")}
        for row in connections(caller, recent(request))
        if row["node"] == name
    ]
    plan = {"connections": clients, "moves": _ordered(moves), "staying": _ordered(staying)}
    return single(request, {"node": name, "being_drained": name in draining, **plan})


@router.post("/nodes/{name:segment}/drain")
def drain(caller: Administrator, name: str) -> Response:
    """Put a node in maintenance mode: no clients, no new queues; its masters move away."""
    return _set_draining(caller, name, True)


@router.post("/nodes/{name:segment}/revive")
def revive(caller: Administrator, name: str) -> Response:
    """End the maintenance mode of a node; masters stay where they are."""
    return _set_draining(caller, name, False)


@router.get("/rebalance")
def plan_rebalance(request: Request, caller: Monitor) -> ObjectReply:
    """What `POST rebalance/queues` would move now: masters by node, and the moves."""
    plan = MasterMoves({}, [])
    if caller.call(DescribeCluster(), ClusterStatus).cluster:
        plan = caller.call(PlanRebalance(), MasterMoves)
    row: Row = msgspec.to_builtins(plan)
    del row["type"]
    row["moves"] = _ordered(row["moves"])
    return single(request, row)


def _ordered(queues: list[Row]) -> list[Row]:
    return sorted(queues, key=lambda row: (row["vhost"], row["name"]))


def _set_draining(caller: Caller, name: str, is_on: bool) -> Response:
    _with_member(caller, name)
    caller.call(SetDraining(is_on=is_on, node=name), Done)
    return Response(status_code=204)


def _with_member(caller: Caller, name: str) -> ClusterStatus:
    """The status of the cluster. Raises HttpRefusal if no node of it is called `name`."""
    cluster = caller.call(DescribeCluster(), ClusterStatus)
    if name not in cluster.members:
        raise not_found()
    return cluster
