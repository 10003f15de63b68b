"""Export of definitions."""

from fastapi import APIRouter, Request
from starlette.responses import Response

from warrenmq.admin.protocol.control import ExportDefinitions, Exported
from warrenmq.management.access import Administrator
from warrenmq.management.sessions import Caller

router = APIRouter(prefix="/api")


@router.get("/definitions")
@router.get("/all-configuration", include_in_schema=False)
def definitions(request: Request, caller: Administrator) -> Response:
    """The definitions of the node: users, vhosts, queues and all else but messages."""
    return _export(request, caller, None)


@router.get("/definitions/{vhost:segment}")
def definitions_of_vhost(request: Request, caller: Administrator, vhost: str) -> Response:
    """The definitions of a vhost."""
    return _export(request, caller, vhost)


def _export(request: Request, caller: Caller, vhost: str | None) -> Response:
    exported = caller.call(ExportDefinitions(vhost=vhost), Exported)
    reply = Response(exported.json, media_type="application/json")
    file = request.query_params.get("download", "")
    if file and file.isascii() and file.isprintable():
        quoted = file.replace("\\", "").replace('"', "")
        reply.headers["content-disposition"] = f'attachment; filename="{quoted}"'
    return reply
