"""The broker and its user at a glance: overview, whoami, the name of the cluster."""

from typing import Final
from urllib.parse import parse_qsl

import msgspec
from fastapi import APIRouter, Request
from starlette.responses import Response

import warrenmq
from warrenmq.admin.protocol.cluster import ClusterStatus, DescribeCluster
from warrenmq.admin.protocol.control import MONITORING, Done, SetGlobalParameter
from warrenmq.management.access import Administrator, ManagementUser, logged_in, vhosts_seen
from warrenmq.management.bodies import JsonBody, RawBody
from warrenmq.management.errors import login_failed
from warrenmq.management.objects.vhosts import message_counts, sums_of_listings, totals_of_all
from warrenmq.management.rows import JsonReply, ObjectReply, Row, single
from warrenmq.management.sessions import Caller
from warrenmq.management.shown import FiguresOf
from warrenmq.management.statistics.retention import LONG_SPANS_S, SHORT_SPANS_S
from warrenmq.vocabulary.rabbitmq_version import RABBITMQ_VERSION

router = APIRouter(prefix="/api")

# Types of exchanges with RabbitMQ's descriptions, where it has the type.
_EXCHANGE_TYPES: Final = {
    "direct": "AMQP direct exchange, as per the AMQP specification",
    "fanout": "AMQP fanout exchange, as per the AMQP specification",
    "headers": "AMQP headers exchange, as per the AMQP specification",
    "topic": "AMQP topic exchange, as per the AMQP specification",
    "x-consistent-hash": "Consistent Hashing Exchange",
    "x-delayed-message": "Delayed Message Exchange.",
    "x-random": "Randomly picks a binding (queue) to route via (to).",
}


@router.get("/overview")
def overview(request: Request, caller: ManagementUser, shown: FiguresOf) -> ObjectReply:
    """Versions, totals of messages and objects, and for a monitor the node and listeners."""
    row = _versions(caller) | _totals(caller)
    if caller.has_tag(MONITORING):
        row["node"] = caller.description.node
        row["listeners"] = _listeners(caller.call(DescribeCluster(), ClusterStatus))
        row["contexts"] = [_own_address(request, caller.description.node)]
        return single(request, shown.overview(row, None))
    return single(request, shown.overview(row, vhosts_seen(caller)))


@router.get("/whoami")
def whoami(request: Request, caller: ManagementUser) -> ObjectReply:
    """The name and the tags of the user who asks."""
    return single(request, {"name": caller.user, "tags": caller.tags})


@router.get("/version")
def version(caller: ManagementUser) -> JsonReply:
    """The version of RabbitMQ that the node stands in for, as a string."""
    return JsonReply(RABBITMQ_VERSION)


@router.get("/auth")
def auth(request: Request) -> ObjectReply:
    """How a browser logs in: with a user and a password."""
    return single(request, {"enable_uaa": False, "uaa_client_id": "", "uaa_location": ""})


@router.get("/cluster-name")
def cluster_name(request: Request, caller: ManagementUser) -> ObjectReply:
    """The name that the cluster shows to clients."""
    return single(request, {"name": caller.description.cluster_name})


@router.put("/cluster-name")
def set_cluster_name(caller: Administrator, body: JsonBody) -> Response:
    """Set the name that the cluster shows to clients."""
    body.require("name")
    name = msgspec.json.encode(body.text("name")).decode()
    caller.call(SetGlobalParameter(name="cluster_name", value=name), Done)
    return Response(status_code=204)


@router.post("/login")
async def login(request: Request, data: RawBody) -> JsonReply:
    """Whether the `username` and `password` of a form fit: "ok", or 401."""
    try:
        fields = dict(parse_qsl(data.decode(), max_num_fields=10))
    except ValueError:
        raise login_failed() from None
    await logged_in(request, fields.get("username", ""), fields.get("password", ""))
    return JsonReply("ok")


def _versions(caller: Caller) -> Row:
    return {
        "management_version": RABBITMQ_VERSION,
        "rabbitmq_version": RABBITMQ_VERSION,
        "product_name": "warren",
        "product_version": warrenmq.__version__,
        "erlang_version": "",
        "erlang_full_version": "",
        "cluster_name": caller.description.cluster_name,
        "sample_retention_policies": {
            "global": list(LONG_SPANS_S),
            "basic": list(SHORT_SPANS_S),
            "detailed": list(SHORT_SPANS_S),
        },
        "exchange_types": [
            {"name": name, "description": text, "enabled": True}
            for name, text in _EXCHANGE_TYPES.items()
        ],
        "statistics_db_event_queue": 0,
    }


def _totals(caller: Caller) -> Row:
    """The totals of what the caller sees."""
    if caller.has_tag(MONITORING):
        totals = totals_of_all(caller)
        vhosts = list(totals.vhosts.values())
        connections, channels = totals.clients.connections, totals.clients.channels
    else:
        vhosts = list(sums_of_listings(caller, vhosts_seen(caller)).values())
        connections = len(caller.rows("connections", ["name"]))
        channels = len(caller.rows("channels", ["number"]))
    objects = {
        "connections": connections,
        "channels": channels,
        "consumers": sum([vhost.consumers for vhost in vhosts]),
        "exchanges": sum([vhost.exchanges for vhost in vhosts]),
        "queues": sum([vhost.queues for vhost in vhosts]),
    }
    return {"queue_totals": message_counts(vhosts), "object_totals": objects}


def _own_address(request: Request, node: str) -> Row:
    """The API itself, at the address that the request came to; RabbitMQ has its port as a text."""
    host, port = request.scope["server"]
    return {
        "node": node,
        "description": "RabbitMQ Management",
        "path": "/",
        "ip": host,
        "port": str(port),
        "ssl_opts": [],
    }


def _listeners(cluster: ClusterStatus) -> list[Row]:
    return [
        {
            "node": node.node,
            "protocol": listener.protocol,
            "ip_address": listener.interface or "::",
            "port": listener.port,
            "socket_opts": {},
        }
        for node in cluster.nodes
        for listener in node.listeners
    ]
