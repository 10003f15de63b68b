"""Copies the definitions of a lone node into a cluster that has none yet.

They are too many for one transaction, so an upload is several, and may break off in between. Two
records keep order:

* `upload` stands from the first transaction to the last. Each transaction compares its revision and
  writes it anew, so two uploads cannot mix, and who finds it knows that the definitions of the
  cluster are not complete.
* `uploader` has a lease that a running upload keeps alive. An upload that finds `upload` without
  `uploader` takes over from one that broke off, and deletes first what that had written.

A binding names the births of its ends, which are known when exchanges and queues are written: so it
comes after them, in a later transaction.
"""

import secrets
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Final

from warrenmq.broker.definitions import metadata
from warrenmq.cluster.metadata.change_operations import operations_of
from warrenmq.cluster.metadata.errors import EtcdUnavailable
from warrenmq.cluster.metadata.gateway import EtcdGateway
from warrenmq.cluster.metadata.keys import KIND_NAMES, prefix_of, record_key
from warrenmq.cluster.metadata.operations import (
    Compare,
    Operation,
    RawDelete,
    RawPut,
    end_of,
    has_none,
    is_created,
    is_modified,
)
from warrenmq.cluster.metadata.values import value_of
from warrenmq.vocabulary.fail_points import fail_point

# Definitions of one transaction: their number, and their bytes (etcd refuses more than 1.5 MiB).
CHUNK_COUNT: Final = 100
CHUNK_BYTES: Final = 1 << 20
# How long a broken upload keeps others away (s).
LEASE_S: Final = 10
# Attempts at a transaction whose outcome stays unknown.
_ATTEMPTS: Final = 3


class UploadConflict(metadata.MetadataError):
    """The cluster has definitions already, or another node uploads its own."""


class UploadUnfinished(metadata.MetadataError):
    """An upload is under way or has broken off, so the definitions are not complete."""


def upload_key(cluster: str) -> bytes:
    """The key of the record that says that an upload has begun and not ended."""
    return record_key(cluster, "upload")


class Upload:
    """One upload into `cluster`; it runs once."""

    def __init__(self, gateway: EtcdGateway, cluster: str) -> None:
        self._gateway = gateway
        self._cluster = cluster
        self._marker = upload_key(cluster)
        self._uploader = record_key(cluster, "uploader")
        # The value of the marker says whose it is, and after how many transactions.
        self._id = secrets.token_hex(16)
        self._transactions_count = 0
        # The revision of this upload's last transaction.
        self._revision = 0
        # Births of what this upload has written, by vhost, name, and whether it is a queue.
        self._births: dict[tuple[bytes, bytes, bool], int] = {}

    def run(self, changes: Iterable[metadata.Change], records: Sequence[RawPut]) -> int:
        """Write `changes`, which are all Put..., and in the last transaction `records`.

        Returns the revision of the last transaction. UploadConflict: nothing was written, or
        another upload took over. After another error the upload has broken off.
        """
        lease = self._gateway.grant(LEASE_S)
        try:
            self._begin(lease)
            wanted = list(changes)
            bindings = [change for change in wanted if isinstance(change, metadata.PutBinding)]
            others = [change for change in wanted if not isinstance(change, metadata.PutBinding)]
            for chunk in _chunks(others):
                self._write(chunk, lease)
            for chunk in _chunks(self._born(binding) for binding in bindings):
                self._write(chunk, lease)
            last: list[Operation] = [RawDelete(self._marker), RawDelete(self._uploader), *records]
            self._transact([is_modified(self._marker, self._revision)], last)
            return self._revision
        finally:
            # After a failure the lease ends by itself.
            with suppress(EtcdUnavailable):
                self._gateway.revoke(lease)

    def _begin(self, lease: int) -> None:
        marker = self._gateway.read(self._marker)
        prefixes = [prefix_of(self._cluster, name) for name in KIND_NAMES]
        operations: list[Operation] = [RawPut(self._uploader, self._id.encode(), lease)]
        if marker is None:
            compares = [is_created(self._marker, 0), *map(has_none, prefixes)]
        else:
            compares = [
                is_modified(self._marker, marker.mod_revision),
                is_created(self._uploader, 0),
            ]
            operations += [RawDelete(prefix, end_of(prefix)) for prefix in prefixes]
        self._transact(compares, [self._mark(), *operations])

    def _write(self, changes: list[metadata.Change], lease: int) -> None:
        self._gateway.keep_alive(lease)
        operations = operations_of(self._cluster, changes)
        compares = [is_modified(self._marker, self._revision)]
        self._transact(compares, [self._mark(), *operations])
        for change in changes:
            if isinstance(change, metadata.PutExchange | metadata.PutQueue):
                end = (change.vhost, change.name, isinstance(change, metadata.PutQueue))
                self._births[end] = self._revision

    def _born(self, binding: metadata.PutBinding) -> metadata.Change:
        """The binding with the births of its ends; a predeclared exchange has none."""
        source = (binding.vhost, binding.source, False)
        destination = (binding.vhost, binding.destination, binding.destination_is_queue)
        return metadata.PutBinding(
            binding.vhost, binding.source, binding.destination, binding.destination_is_queue,
            binding.key, binding.arguments, self._births.get(source, metadata.NO_BIRTH),
            self._births.get(destination, metadata.NO_BIRTH),
        )  # fmt: skip

    def _mark(self) -> RawPut:
        self._transactions_count += 1
        return RawPut(self._marker, self._value())

    def _value(self) -> bytes:
        return f"{self._id} {self._transactions_count}".encode()

    def _transact(self, compares: list[Compare], operations: Sequence[Operation]) -> None:
        """Carry out the next transaction, again if its outcome is unknown.

        The comparisons let it happen once, and the marker tells afterwards whether it has.
        """
        for attempt in range(_ATTEMPTS):
            try:
                result = self._gateway.transact(compares, operations)
            except EtcdUnavailable as error:
                if attempt == _ATTEMPTS - 1 or not error.is_outcome_unknown:
                    raise
                continue
            if result.succeeded:
                self._revision = result.revision
            else:
                self._revision = self._revision_of_own(operations)
            fail_point("upload.part")
            return

    def _revision_of_own(self, operations: Sequence[Operation]) -> int:
        """The revision of a transaction that failed because an earlier attempt succeeded.

        Raises UploadConflict if it was another upload instead.
        """
        marker = self._gateway.read(self._marker)
        is_end = not isinstance(operations[0], RawPut)
        if marker is None and is_end:
            return self._gateway.revision(self._marker)
        if marker is not None and not is_end and marker.value == self._value():
            return marker.mod_revision
        if self._revision:
            raise UploadConflict(f"another node took over the upload to cluster {self._cluster}")
        if marker is None:
            raise UploadConflict(f"cluster {self._cluster} has definitions already")
        raise UploadConflict(f"another node uploads its definitions to cluster {self._cluster}")


def _chunks(changes: Iterable[metadata.Change]) -> Iterator[list[metadata.Change]]:
    """Pieces that fit in a transaction."""
    chunk: list[metadata.Change] = []
    chunk_bytes = 0
    for change in changes:
        size = len(value_of(change))
        if chunk and (len(chunk) == CHUNK_COUNT or chunk_bytes + size > CHUNK_BYTES):
            yield chunk
            chunk, chunk_bytes = [], 0
        chunk.append(change)
        chunk_bytes += size
    if chunk:
        yield chunk
