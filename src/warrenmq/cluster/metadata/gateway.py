"""A blocking client of etcd v3, version 3.4 and later, by its JSON gateway.

Threads share one `EtcdGateway`. Its methods raise EtcdUnavailable (with what is known of the
outcome), EtcdRefused and Compacted; see `errors.py`. Reads are linearizable: they see every
transaction that ended before.
"""

from collections.abc import Callable, Sequence
from typing import Final, TypeVar

import msgspec

from warrenmq.cluster.metadata import operations
from warrenmq.cluster.metadata.endpoints import Credentials, Endpoints, TlsFiles
from warrenmq.cluster.metadata.errors import EtcdUnavailable, LeaseGone
from warrenmq.cluster.metadata.watching import StopSignal, Watch

# Keys of one page of a range. Their values are small.
PAGE: Final = 1000


class _Header(msgspec.Struct):
    revision: int = 0
    cluster_id: int = 0


class _Range(msgspec.Struct):
    header: _Header = msgspec.field(default_factory=_Header)
    kvs: list[operations.KeyValue] = []
    more: bool = False


class _Deleted(msgspec.Struct):
    deleted: int = 0


class _Response(msgspec.Struct):
    response_range: _Range | None = None
    response_delete_range: _Deleted | None = None


class _Txn(msgspec.Struct):
    header: _Header
    succeeded: bool = False
    responses: list[_Response] = []


class _Lease(msgspec.Struct):
    id: int = msgspec.field(default=0, name="ID")
    ttl: int = msgspec.field(default=0, name="TTL")


class _KeptAlive(msgspec.Struct):
    result: _Lease


class _Member(msgspec.Struct):
    name: str = ""
    client_urls: list[str] = msgspec.field(default_factory=list, name="clientURLs")


class _Members(msgspec.Struct):
    members: list[_Member] = []


class _Status(msgspec.Struct):
    header: _Header
    version: str
    db_size: int = msgspec.field(default=0, name="dbSize")
    leader: int = 0
    errors: list[str] = []


_Reply = TypeVar("_Reply", bound=msgspec.Struct)


class EtcdGateway:
    """An etcd cluster, by the URLs of its members.

    Raises ValueError for malformed URLs, EtcdRefused for unreadable TLS files. With `credentials` a
    token is fetched, and fetched again when it expires. The certificate in `tls` authenticates the
    connection only: etcd's gateway takes no user from it.
    """

    def __init__(
        self,
        urls: Sequence[str],
        credentials: Credentials | None = None,
        tls: TlsFiles | None = None,
    ) -> None:
        self._endpoints = Endpoints(urls, credentials, tls)

    def reload_tls(self, tls: TlsFiles) -> None:
        """See `Endpoints.reload_tls`."""
        self._endpoints.reload_tls(tls)

    def close(self) -> None:
        """Close the connections."""
        self._endpoints.close()

    def read_range(
        self, prefix: bytes, revision: int = 0, page: int = PAGE, keys_only: bool = False
    ) -> tuple[list[operations.KeyValue], int]:
        """All keys that begin with `prefix`, in order, as of one revision, and that revision.

        `revision` 0 is the newest. Compacted: it became too old, perhaps while pages were read.
        """
        found: list[operations.KeyValue] = []
        start, end = prefix, operations.end_of(prefix)
        while True:
            reply = self._call(
                "/v3/kv/range",
                {
                    "key": start,
                    "range_end": end,
                    "revision": revision,
                    "limit": page,
                    "keys_only": keys_only,
                },
                _Range,
            )
            found.extend(reply.kvs)
            revision = revision or reply.header.revision
            if not reply.more:
                return found, revision
            start = reply.kvs[-1].key + b"\0"

    def read(self, key: bytes, revision: int = 0) -> operations.KeyValue | None:
        """The key as of `revision` (0: the newest), None if there was none."""
        reply = self._call("/v3/kv/range", {"key": key, "revision": revision}, _Range)
        return reply.kvs[0] if reply.kvs else None

    def transact(
        self,
        compares: Sequence[operations.Compare],
        then: Sequence[operations.Operation],
        otherwise: Sequence[operations.Operation] = (),
    ) -> operations.TxnResult:
        """Carry out `then` if all `compares` hold, `otherwise` if not, as one transaction.

        EtcdUnavailable with `is_outcome_unknown`: the transaction was sent, and no answer came. To
        repeat it is safe if the first attempt, had it been carried out, makes a comparison fail, or
        if doing it twice is the same as doing it once. ValueError: more than OPERATIONS_MAX.
        """
        if max(len(compares), len(then), len(otherwise)) > operations.OPERATIONS_MAX:
            raise ValueError(
                f"a transaction of etcd has at most {operations.OPERATIONS_MAX} operations"
            )
        request = {
            "compare": [compare.as_json() for compare in compares],
            "success": [operation.as_json() for operation in then],
            "failure": [operation.as_json() for operation in otherwise],
        }
        reply = self._call("/v3/kv/txn", request, _Txn, is_repeatable=False)
        responses = tuple(_result(response) for response in reply.responses)
        return operations.TxnResult(reply.succeeded, reply.header.revision, responses)

    def watch(
        self,
        prefix: bytes,
        from_revision: int,
        on_events: Callable[[int, list[operations.Event]], None],
        stop: StopSignal,
    ) -> None:
        """Call `on_events` with each revision that changed keys with `prefix`, and its events.

        Revisions come in order, each once and whole, from `from_revision` on, until `stop` is set.
        A lost connection, a silent member and one without a leader make the watch go on at another
        member. Raises Compacted, RevisionsLost, and EtcdRefused if the user may not read the keys.
        """
        Watch(self._endpoints, prefix, from_revision, self.revision).run(on_events, stop)

    def revision(self, key: bytes) -> int:
        """The revision of the last transaction, of any key, for a user who may read `key`."""
        request = {"key": key, "keys_only": True}
        return self._call("/v3/kv/range", request, _Range).header.revision

    def grant(self, ttl_s: int) -> int:
        """The id of a new lease that ends `ttl_s` after its last renewal, or somewhat later."""
        return self._call("/v3/lease/grant", {"TTL": ttl_s}, _Lease).id

    def keep_alive(self, lease: int) -> int:
        """Renew a lease; the time it has from now on (s), 0 if it has ended."""
        reply = self._call("/v3/lease/keepalive", {"ID": lease}, _KeptAlive)
        return reply.result.ttl

    def revoke(self, lease: int) -> None:
        """End a lease and delete its keys; a lease that has ended is no error."""
        try:
            self._endpoints.call("/v3/lease/revoke", {"ID": lease})
        except LeaseGone:
            return

    def status(self) -> operations.EtcdStatus:
        """How the member that answers sees itself and its cluster; it need not have a leader."""
        status = self._call("/v3/maintenance/status", {}, _Status, needs_leader=False)
        members = self._call("/v3/cluster/member/list", {}, _Members, needs_leader=False).members
        return operations.EtcdStatus(
            status.header.cluster_id,
            status.version,
            status.db_size,
            status.leader != 0,
            tuple(
                operations.EtcdMember(member.name, tuple(member.client_urls)) for member in members
            ),
            tuple(error for error in status.errors if "alarm:" in error),
        )

    def _call(
        self,
        path: str,
        request: object,
        type: type[_Reply],
        is_repeatable: bool = True,
        needs_leader: bool = True,
    ) -> _Reply:
        reply = self._endpoints.call(path, request, is_repeatable, needs_leader)
        try:
            # Parsing is lenient because the gateway sends 64-bit numbers as strings.
            return msgspec.json.decode(reply, type=type, strict=False)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            text = f"{path}: the answer is not etcd's: {error}"
            raise EtcdUnavailable(text, is_outcome_unknown=not is_repeatable) from None


def _result(response: _Response) -> operations.OperationResult:
    if response.response_range is not None:
        return operations.OperationResult(found=tuple(response.response_range.kvs))
    if response.response_delete_range is not None:
        return operations.OperationResult(deleted_count=response.response_delete_range.deleted)
    return operations.OperationResult()
