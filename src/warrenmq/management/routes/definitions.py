"""Export and import of definitions."""

from fastapi import APIRouter, Request
from starlette.responses import Response

from warrenmq.admin.client.client import AdminRefusedError
from warrenmq.admin.client.definitions import import_definitions
from warrenmq.admin.protocol.control import Done, ExportDefinitions, Exported, ImportDefinitions
from warrenmq.management.access import Administrator, vhosts_seen
from warrenmq.management.bodies import RawBody, field_of_form, parsed
from warrenmq.management.errors import bad_request, missing
from warrenmq.management.grants import all_rights
from warrenmq.management.rows import JsonReply
from warrenmq.management.sessions import Caller, refusal
from warrenmq.vocabulary.error_codes import NO_SUCH_USER, NO_SUCH_VHOST, NOT_FOUND

router = APIRouter(prefix="/api")


@router.get("/definitions")
@router.get("/all-configuration", include_in_schema=False)
def definitions(request: Request, caller: Administrator) -> Response:
    """The definitions of the node: users, vhosts, queues and all else but messages."""
    return _export(request, caller, None)


@router.get("/definitions/{vhost:segment}")
def definitions_of_vhost(request: Request, caller: Administrator, vhost: str) -> Response:
    """The definitions of a vhost."""
    if vhost not in vhosts_seen(caller):
        raise bad_request("vhost_not_found")
    return _export(request, caller, vhost)


def _export(request: Request, caller: Caller, vhost: str | None) -> Response:
    exported = caller.call(ExportDefinitions(vhost=vhost), Exported)
    reply = Response(exported.json, media_type="application/json")
    file = request.query_params.get("download", "")
    if file and file.isascii() and file.isprintable():
        quoted = file.replace("\\", "").replace('"', "")
        reply.headers["content-disposition"] = f'attachment; filename="{quoted}"'
    return reply


@router.post("/definitions")
@router.post("/all-configuration", include_in_schema=False)
def import_all(request: Request, caller: Administrator, data: RawBody) -> Response:
    """Add definitions to the node; with `dry-run=true` only say what would change."""
    return _import(request, caller, data, None)


@router.post("/definitions/{vhost:segment}")
def import_into_vhost(
    request: Request, caller: Administrator, vhost: str, data: RawBody
) -> Response:
    """Add the definitions of one vhost, as an export of one vhost has them."""
    return _import(request, caller, data, vhost)


def _import(request: Request, caller: Caller, data: bytes, vhost: str | None) -> Response:
    """204 when all is done; a dry run answers with the changes and what would be left out."""
    kind = request.headers.get("content-type", "")
    if kind.startswith("multipart/form-data"):
        data = field_of_form(kind, data, "file")
    # An empty body is an empty document.
    document = data.strip() or b"{}"
    named_vhosts = parsed(document).values.get("vhosts") or []
    is_dry_run = request.query_params.get("dry-run") == "true"
    wanted = ImportDefinitions(json=document, vhost=vhost, is_dry_run=is_dry_run)
    known = vhosts_seen(caller)
    if vhost is not None and vhost not in known:
        raise missing("vhost_not_found")
    with caller.session() as call:
        try:
            found = import_definitions(call.client.request, wanted)
        except AdminRefusedError as error:
            if error.code in (NO_SUCH_USER, NO_SUCH_VHOST, NOT_FOUND):
                # The path exists; what the body names does not.
                raise bad_request(error.text) from None
            raise refusal(error) from None
    if is_dry_run:
        return JsonReply({"changes": found.changes, "left_out": found.left_out})
    # The import has checked the document's form.
    for created in {row["name"] for row in named_vhosts}.difference(known):
        _let_in(caller, created)
    return Response(status_code=204)


def _let_in(caller: Caller, vhost: str) -> None:
    """Give the caller all rights in a new vhost, unless the document says which."""
    if {"user": caller.user} not in caller.rows("permissions", ["user"], vhost):
        caller.call(all_rights(vhost, caller.user), Done)
