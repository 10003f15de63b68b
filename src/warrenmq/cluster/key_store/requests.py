"""Requests and replies of the store, in the JSON of etcd's gateway, and its errors.

Only what `EtcdGateway` sends is known. Bytes are base64; numbers are numbers.
"""

from collections.abc import Callable, Sequence
from typing import Final, Literal, TypeVar

import msgspec

from warrenmq import __version__
from warrenmq.cluster.key_store.store import (
    DuplicateKey,
    KeyStore,
    NotYetMade,
    TooOld,
    UnknownLease,
)
from warrenmq.cluster.metadata.operations import (
    Compare,
    Event,
    Operation,
    OperationResult,
    RawDelete,
    RawGet,
    RawPut,
)

# Longest request, as in etcd.
REQUEST_BYTES_MAX: Final = 1_572_864
# Keys of a reply to a request without a limit.
_UNLIMITED: Final = 1 << 30
# gRPC's codes of errors, with the HTTP statuses that go with them.
INVALID: Final = 3
NOT_FOUND: Final = 5
OUT_OF_RANGE: Final = 11
UNIMPLEMENTED: Final = 12
UNAVAILABLE: Final = 14
UNAUTHENTICATED: Final = 16
STATUS_OF: Final = {
    INVALID: 400,
    NOT_FOUND: 404,
    OUT_OF_RANGE: 400,
    UNIMPLEMENTED: 501,
    UNAVAILABLE: 503,
    UNAUTHENTICATED: 401,
}


class RequestError(Exception):
    """An error that the client gets, with gRPC's `code`."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code

    def as_json(self) -> bytes:
        """The error as the body of a reply."""
        return msgspec.json.encode({"message": str(self), "code": self.code})


class _Range(msgspec.Struct):
    key: bytes
    range_end: bytes = b""
    revision: int = 0
    limit: int = 0
    keys_only: bool = False


class _Put(msgspec.Struct):
    key: bytes
    value: bytes = b""
    lease: int = 0


class _Delete(msgspec.Struct):
    key: bytes
    range_end: bytes = b""


class _Operation(msgspec.Struct):
    request_put: _Put | None = None
    request_delete_range: _Delete | None = None
    request_range: _Range | None = None

    def parsed(self) -> Operation:
        """The operation that is given."""
        if self.request_put is not None:
            put = self.request_put
            return RawPut(put.key, put.value, put.lease)
        if self.request_delete_range is not None:
            return RawDelete(self.request_delete_range.key, self.request_delete_range.range_end)
        if self.request_range is not None:
            return RawGet(self.request_range.key)
        raise RequestError("etcdserver: no operation in a transaction", INVALID)


class _Compare(msgspec.Struct):
    key: bytes
    target: Literal["CREATE", "MOD", "LEASE", "VALUE"]
    result: Literal["EQUAL", "GREATER", "LESS"]
    range_end: bytes = b""
    create_revision: int = 0
    mod_revision: int = 0
    lease: int = 0
    value: bytes = b""

    def parsed(self) -> Compare:
        """The comparison."""
        operand: int | bytes
        match self.target:
            case "CREATE":
                operand = self.create_revision
            case "MOD":
                operand = self.mod_revision
            case "LEASE":
                operand = self.lease
            case "VALUE":
                operand = self.value
        return Compare(self.key, self.target, self.result, operand, self.range_end)


class _Txn(msgspec.Struct):
    compare: list[_Compare] = []
    success: list[_Operation] = []
    failure: list[_Operation] = []


class _Lease(msgspec.Struct):
    id: int = msgspec.field(default=0, name="ID")
    ttl: int = msgspec.field(default=0, name="TTL")


class WatchedRange(msgspec.Struct):
    """The keys from `key` to before `range_end`, from `start_revision` on."""

    key: bytes
    range_end: bytes = b""
    start_revision: int = 0


class _Watch(msgspec.Struct):
    create_request: WatchedRange


class Login(msgspec.Struct):
    """A user's name and password."""

    name: str
    password: str


_Wanted = TypeVar("_Wanted", bound=msgspec.Struct)


def decoded_login(body: bytes) -> Login:
    """The login in a request. Raises RequestError."""
    return _decoded(body, Login)


def decoded_watch(body: bytes) -> WatchedRange:
    """The range and first revision that a watch wants. Raises RequestError."""
    return _decoded(body, _Watch).create_request


def _decoded(body: bytes, type: type[_Wanted]) -> _Wanted:
    try:
        return msgspec.json.decode(body, type=type)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RequestError(f"etcdserver: {error}", INVALID) from None


# -- replies -----------------------------------------------------------------------------------


def answer(store: KeyStore, path: str, body: bytes, now_s: float) -> bytes:
    """Carry out the request `body` to `path`; returns the reply. Raises RequestError."""
    handler = _HANDLERS.get(path)
    if handler is None:
        raise RequestError(f"etcdserver: {path} is not known here", UNIMPLEMENTED)
    try:
        reply = handler(store, body, now_s)
    except DuplicateKey:
        raise RequestError("etcdserver: duplicate key given in txn request", INVALID) from None
    except UnknownLease:
        raise RequestError("etcdserver: requested lease not found", NOT_FOUND) from None
    except TooOld:
        text = "etcdserver: mvcc: required revision has been compacted"
        raise RequestError(text, OUT_OF_RANGE) from None
    except NotYetMade:
        text = "etcdserver: mvcc: required revision is a future revision"
        raise RequestError(text, OUT_OF_RANGE) from None
    return msgspec.json.encode({"header": {"revision": store.revision, "cluster_id": 1}, **reply})


def _range(store: KeyStore, body: bytes, now_s: float) -> dict[str, object]:
    wanted = _decoded(body, _Range)
    found = store.read_range(wanted.key, wanted.range_end, wanted.revision)
    shown = found[: wanted.limit or _UNLIMITED]
    if wanted.keys_only:
        shown = [msgspec.structs.replace(each, value=b"") for each in shown]
    return {"kvs": shown, "more": len(shown) < len(found)}


def _transact(store: KeyStore, body: bytes, now_s: float) -> dict[str, object]:
    wanted = _decoded(body, _Txn)
    result = store.transact(
        [each.parsed() for each in wanted.compare],
        [each.parsed() for each in wanted.success],
        [each.parsed() for each in wanted.failure],
    )
    operations = wanted.success if result.succeeded else wanted.failure
    return {
        "succeeded": result.succeeded,
        "responses": [
            _response(operation, each)
            for operation, each in zip(operations, result.responses, strict=True)
        ],
    }


def _response(operation: _Operation, result: OperationResult) -> dict[str, object]:
    if operation.request_range is not None:
        return {"response_range": {"kvs": result.found}}
    if operation.request_delete_range is not None:
        return {"response_delete_range": {"deleted": result.deleted_count}}
    return {"response_put": {}}


def _grant(store: KeyStore, body: bytes, now_s: float) -> dict[str, object]:
    ttl_s = _decoded(body, _Lease).ttl
    return {"ID": store.grant(ttl_s, now_s), "TTL": ttl_s}


def _keep_alive(store: KeyStore, body: bytes, now_s: float) -> dict[str, object]:
    lease = _decoded(body, _Lease).id
    return {"result": {"ID": lease, "TTL": store.keep_alive(lease, now_s)}}


def _revoke(store: KeyStore, body: bytes, now_s: float) -> dict[str, object]:
    if not store.revoke(_decoded(body, _Lease).id):
        raise UnknownLease
    return {}


def _members(store: KeyStore, body: bytes, now_s: float) -> dict[str, object]:
    return {"members": [{"name": "warren", "clientURLs": []}]}


def _status(store: KeyStore, body: bytes, now_s: float) -> dict[str, object]:
    return {"version": f"warren {__version__}", "leader": 1, "dbSize": store.size_bytes}


_HANDLERS: Final[dict[str, Callable[[KeyStore, bytes, float], dict[str, object]]]] = {
    "/v3/kv/range": _range,
    "/v3/kv/txn": _transact,
    "/v3/lease/grant": _grant,
    "/v3/lease/keepalive": _keep_alive,
    "/v3/lease/revoke": _revoke,
    "/v3/cluster/member/list": _members,
    "/v3/maintenance/status": _status,
}


def watch_line(revision: int, events: Sequence[Event] = (), is_created: bool = False) -> bytes:
    """A line of a watch: events of one revision, or a sign of life without any."""
    result = {"header": {"revision": revision}, "created": is_created, "events": events}
    return msgspec.json.encode({"result": result}) + b"\n"


def compacted_line(revision: int) -> bytes:
    """The line that ends a watch of events before `revision`, the oldest that is known."""
    result = {"header": {}, "canceled": True, "compact_revision": max(revision, 1)}
    return msgspec.json.encode({"result": result}) + b"\n"
