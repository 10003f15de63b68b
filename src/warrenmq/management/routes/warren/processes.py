"""The process of a node, the asked one or another of its cluster: its log."""

from typing import Any, Final, TypeVar

import msgspec
from fastapi import APIRouter, Request

from warrenmq.admin.protocol.cluster import ClusterStatus, DescribeCluster
from warrenmq.admin.protocol.log import LogEntries, ReadLog
from warrenmq.management.access import Monitor
from warrenmq.management.errors import HttpRefusal, bad_request, not_found
from warrenmq.management.rows import ObjectReply, Row, single
from warrenmq.management.sessions import Caller

router = APIRouter(prefix="/api/warren")

ReplyType = TypeVar("ReplyType", bound=LogEntries)

_SILENT: Final = 503
_OF_LOG: Final = ("node", "after", "before", "level", "text", "limit")


@router.get("/log")
def log(request: Request, caller: Monitor) -> ObjectReply:
    """The newest entries that the asked node, or `node`, has in memory, the newest first.

    `after` and `before` are numbers of entries: those between them are wanted.
    """
    query = request.query_params
    asked = _read({name: query[name] for name in _OF_LOG if name in query})
    return single(request, _row(_ask(caller, asked, LogEntries)))


def _read(values: dict[str, str]) -> ReadLog:
    try:
        return msgspec.convert(values, ReadLog, strict=False)
    except msgspec.ValidationError as error:
        raise bad_request(str(error)) from None


def _ask(caller: Caller, request: ReadLog, expected: type[ReplyType]) -> ReplyType:
    """What the node that the request names answers; 503 for one that does not, 404 for none."""
    try:
        return caller.call(request, expected)
    except HttpRefusal as refused:
        if refused.status == _SILENT and request.node:
            cluster = caller.call(DescribeCluster(), ClusterStatus)
            if request.node not in (*cluster.members, *cluster.running):
                raise not_found() from None
        raise


def _row(reply: Any) -> Row:
    row: Row = msgspec.to_builtins(reply)
    del row["type"]
    return row
