"""Reader groups and sinks, by which Spark and other programs read and write queues."""

from typing import TypeVar

import msgspec
from fastapi import APIRouter, Request
from starlette.responses import Response

from warrenmq.admin.client.client import AdminRefusedError
from warrenmq.admin.client.sinks import joined
from warrenmq.admin.protocol import requests
from warrenmq.admin.protocol.sinks import DeleteSink, ListSinks, SinkDeleted, SinkList, SinkStatus
from warrenmq.management.access import VhostUser
from warrenmq.management.cluster_sessions import ask_all
from warrenmq.management.errors import not_found
from warrenmq.management.objects.listings import named
from warrenmq.management.rows import ListReply, ObjectReply, Row, listed, single
from warrenmq.management.sessions import Call, Caller, refusal
from warrenmq.vocabulary.error_codes import NOT_FOUND
from warrenmq.vocabulary.names import name_text

router = APIRouter(prefix="/api/warren")

RequestType = TypeVar("RequestType", requests.DeleteGroup, DeleteSink)
ReplyType = TypeVar("ReplyType", bound=requests.Reply)


@router.get("/groups/{vhost:segment}")
def groups_of_vhost(request: Request, caller: VhostUser, vhost: str) -> ListReply:
    """The reader groups of a vhost with their lag, in messages and seconds."""
    return listed(request, _groups(caller, vhost))


@router.get("/groups/{vhost:segment}/{group:segment}")
def one_group(request: Request, caller: VhostUser, vhost: str, group: str) -> ObjectReply:
    """One reader group, queue by queue."""
    return single(request, named(_groups(caller, vhost), group))


@router.delete("/groups/{vhost:segment}/{group:segment}")
def delete_group(caller: VhostUser, vhost: str, group: str) -> Response:
    """Forget a reader group: the messages that it has reserved are ready again."""
    request = _named_request(requests.DeleteGroup, {"group": group})
    return _delete(caller, vhost, request, requests.GroupDeleted)


@router.get("/sinks/{vhost:segment}")
def sinks_of_vhost(request: Request, caller: VhostUser, vhost: str) -> ListReply:
    """The sinks of a vhost: last committed batch, and what of it is not published yet."""
    return listed(request, _sinks(caller, vhost))


@router.get("/sinks/{vhost:segment}/{sink:segment}")
def one_sink(request: Request, caller: VhostUser, vhost: str, sink: str) -> ObjectReply:
    """One sink."""
    return single(request, named(_sinks(caller, vhost), sink))


@router.delete("/sinks/{vhost:segment}/{sink:segment}")
def delete_sink(caller: VhostUser, vhost: str, sink: str) -> Response:
    """Forget a sink and drop what it has staged."""
    return _delete(caller, vhost, _named_request(DeleteSink, {"sink": sink}), SinkDeleted)


def _named_request(kind: type[RequestType], values: dict[str, str]) -> RequestType:
    """A request with a name. Raises HttpRefusal for a name that nothing can have."""
    try:
        return msgspec.convert(values, kind)
    except msgspec.ValidationError:
        raise not_found() from None


def _groups(caller: Caller, vhost: str) -> list[Row]:
    """All groups; in a cluster each with its parts at all nodes."""

    def ask(call: Call) -> list[requests.GroupStatus]:
        return call(requests.ListGroups(), requests.GroupList).groups

    groups: dict[str, Row] = {}
    for found in ask_all(caller, vhost, ask, is_partial=True).values():
        for status in found:
            row = _group(status)
            known = groups.setdefault(status.group, row)
            if known is not row:
                _add(known, row)
    return [{"vhost": vhost, "name": name, **row} for name, row in groups.items()]


def _group(status: requests.GroupStatus) -> Row:
    row: Row = msgspec.to_builtins(status, builtin_types=(bytes,))
    del row["group"]
    for member in row["members"]:
        member["queue"] = name_text(member["queue"])
    return row


def _add(known: Row, part: Row) -> None:
    """Add the part of a group at another node; each node has an epoch of its own."""
    known["members"] += part["members"]
    known["opener"] = known["opener"] or part["opener"]
    for count in ("held", "lag"):
        known[count] += part[count]
    for highest in ("epoch", "lag_seconds"):
        known[highest] = max(known[highest], part[highest])


def _sinks(caller: Caller, vhost: str) -> list[Row]:
    """All sinks; in a cluster each once, whichever nodes have its stages."""

    def ask(call: Call) -> list[SinkStatus]:
        return call(ListSinks(), SinkList).sinks

    rows = []
    for status in joined(ask_all(caller, vhost, ask, is_partial=True)):
        row: Row = msgspec.to_builtins(status)
        rows.append({"vhost": vhost, "name": row.pop("sink"), **row})
    return rows


def _delete(
    caller: Caller, vhost: str, request: requests.Request, expected: type[ReplyType]
) -> Response:
    """Delete at all nodes that have a part of it. Raises HttpRefusal if there is none."""

    def delete(call: Call) -> bool:
        try:
            call.client.request(request, expected)
        except AdminRefusedError as error:
            if error.code != NOT_FOUND:
                raise refusal(error) from None
            return False
        return True

    if not any(ask_all(caller, vhost, delete, isinstance(request, DeleteSink)).values()):
        raise not_found()
    return Response(status_code=204)
