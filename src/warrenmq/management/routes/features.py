"""What the node has of RabbitMQ's features, and empty lists for what warren has not."""

from fastapi import APIRouter, Request

from warrenmq.management.access import Administrator, ManagementUser, Monitor, VhostReader
from warrenmq.management.rows import JsonReply, listed
from warrenmq.vocabulary.feature_flags import FEATURE_FLAGS, flag_state

router = APIRouter(prefix="/api")


@router.get("/extensions")
def extensions(request: Request, caller: ManagementUser) -> JsonReply:
    """The plug-ins of RabbitMQ's pages: none."""
    return listed(request, [])


@router.get("/feature-flags")
def feature_flags(request: Request, caller: Administrator) -> JsonReply:
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


@router.get("/federation-links")
@router.get("/shovels")
def links(request: Request, caller: Monitor) -> JsonReply:
    """Links to other brokers: none."""
    return listed(request, [])


@router.get("/federation-links/{vhost:segment}")
@router.get("/shovels/{vhost:segment}")
def links_of_vhost(request: Request, caller: VhostReader, vhost: str) -> JsonReply:
    """Links of a vhost to other brokers: none."""
    return listed(request, [])
