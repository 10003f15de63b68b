"""The asked node and its cluster, beyond what RabbitMQ tells: latencies, links, etcd."""

import msgspec
from fastapi import APIRouter, Request

from warrenmq.admin.protocol.cluster import ClusterStatus, DescribeCluster
from warrenmq.admin.protocol.latencies import DescribeLatencies, NodeLatencies
from warrenmq.management.access import Monitor
from warrenmq.management.rows import ObjectReply, Row, single

router = APIRouter(prefix="/api/warren")


@router.get("/latencies")
def latencies(request: Request, caller: Monitor) -> ObjectReply:
    """How long the asked node takes: counts of durations (ns) by size, since its start."""
    row: Row = msgspec.to_builtins(caller.call(DescribeLatencies(), NodeLatencies))
    del row["type"]
    return single(request, row)


@router.get("/cluster")
def cluster(request: Request, caller: Monitor) -> ObjectReply:
    """The cluster as the asked node knows it: members, their links and listeners, and etcd."""
    row: Row = msgspec.to_builtins(caller.call(DescribeCluster(), ClusterStatus))
    del row["type"]
    return single(request, row)
