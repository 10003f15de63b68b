"""What the node has of RabbitMQ's features, and empty lists for what warren has not."""

from fastapi import APIRouter, Request
from starlette.responses import Response

from warrenmq.management.access import (
    Administrator,
    ManagementUser,
    Monitor,
    VhostReader,
    vhost_watcher,
)
from warrenmq.management.errors import bad_request
from warrenmq.management.rows import ListReply, listed
from warrenmq.vocabulary.feature_flags import FEATURE_FLAGS, flag_state

router = APIRouter(prefix="/api")


@router.get("/extensions")
def extensions(request: Request, caller: ManagementUser) -> ListReply:
    """The plug-ins of RabbitMQ's pages: none."""
    return listed(request, [])


@router.get("/feature-flags")
def feature_flags(request: Request, caller: Administrator) -> ListReply:
    """The features by which tools decide what a broker can do."""
    rows = [
        {
            "name": name,
            "state": flag_state(is_on),
            "stability": "stable",
            "provided_by": "rabbit",
            "desc": "",
            "doc_url": "",
        }
        for name, is_on in FEATURE_FLAGS.items()
    ]
    return listed(request, rows)


@router.put("/feature-flags/{name:segment}/enable")
def enable_feature_flag(caller: Administrator, name: str) -> Response:
    """Enable a feature: those that warren has are enabled at all times."""
    if not FEATURE_FLAGS.get(name, False):
        raise bad_request("unsupported")
    return Response(status_code=204)


@router.get("/deprecated-features")
@router.get("/deprecated-features/used")
def deprecated_features(request: Request, caller: ManagementUser) -> ListReply:
    """Features that newer versions of RabbitMQ will drop: none."""
    return listed(request, [])


@router.get("/federation-links")
@router.get("/shovels")
def links(request: Request, caller: Monitor) -> ListReply:
    """Links to other brokers: none."""
    return listed(request, [])


@router.get("/federation-links/{vhost:segment}")
@router.get("/shovels/{vhost:segment}")
def links_of_vhost(request: Request, caller: Monitor, vhost: str) -> ListReply:
    """Links of a vhost to other brokers: none."""
    vhost_watcher(caller, vhost)
    return listed(request, [])


@router.get("/stream/connections")
@router.get("/stream/consumers")
@router.get("/stream/publishers")
@router.get("/stream/super-streams")
def streams(request: Request, caller: ManagementUser) -> ListReply:
    """Clients of RabbitMQ's stream protocol: none."""
    return listed(request, [])


@router.get("/stream/connections/{vhost:segment}")
@router.get("/stream/consumers/{vhost:segment}")
@router.get("/stream/publishers/{vhost:segment}")
@router.get("/stream/publishers/{vhost:segment}/{stream:segment}")
def streams_of_vhost(request: Request, caller: VhostReader, vhost: str) -> ListReply:
    """Clients of RabbitMQ's stream protocol in a vhost: none."""
    return listed(request, [])
