"""The process of a node, the asked one or another of its cluster: configuration and log."""

from collections.abc import Iterable
from typing import Any, Final, TypeVar

import msgspec
from fastapi import APIRouter, Request

from warrenmq.admin.protocol.cluster import ClusterStatus, DescribeCluster
from warrenmq.admin.protocol.configuration import Configuration, DescribeConfiguration
from warrenmq.admin.protocol.log import LogEntries, ReadLog
from warrenmq.management.access import Monitor
from warrenmq.management.errors import HttpRefusal, bad_request, not_found
from warrenmq.management.rows import ObjectReply, Row, single
from warrenmq.management.sessions import Caller

router = APIRouter(prefix="/api/warren")

RequestType = TypeVar("RequestType", DescribeConfiguration, ReadLog)
ReplyType = TypeVar("ReplyType", Configuration, LogEntries)

_SILENT: Final = 503
_OF_LOG: Final = ("node", "after", "before", "level", "text", "limit")


@router.get("/config")
def configuration(request: Request, caller: Monitor) -> ObjectReply:
    """All keys of the configuration of the asked node, or of `node`, with values and sources.

    `pending` is what the sources as they are now give to a key: a reload or a restart takes it.
    """
    asked = _read(request, ("node",), DescribeConfiguration)
    return single(request, _row(_ask(caller, asked, Configuration)))


@router.get("/log")
def log(request: Request, caller: Monitor) -> ObjectReply:
    """The newest entries that the asked node, or `node`, has in memory, the newest first.

    `after` and `before` are numbers of entries: those between them are wanted.
    """
    return single(request, _row(_ask(caller, _read(request, _OF_LOG, ReadLog), LogEntries)))


def _read(request: Request, names: Iterable[str], kind: type[RequestType]) -> RequestType:
    """The request to the node that the query asks for. Raises HttpRefusal."""
    query = request.query_params
    values = {name: query[name] for name in names if name in query}
    try:
        return msgspec.convert(values, kind, strict=False)
    except msgspec.ValidationError as error:
        raise bad_request(str(error)) from None


def _ask(
    caller: Caller, request: DescribeConfiguration | ReadLog, expected: type[ReplyType]
) -> ReplyType:
    """What the node that the request names answers; 503 for one that does not, 404 for none."""
    try:
        return caller.call(request, expected)
    except HttpRefusal as refused:
        if refused.status == _SILENT and request.node:
            cluster: ClusterStatus = caller.call(DescribeCluster(), ClusterStatus)
            if request.node not in (*cluster.members, *cluster.running):
                raise not_found() from None
        raise


def _row(reply: Any) -> Row:
    row: Row = msgspec.to_builtins(reply)
    del row["type"]
    return row
