"""The rotation of the secret that the nodes of a cluster prove to each other.

A rotation has two steps. `begin` makes a new secret; from then on nodes prove it, and take the one
before as well. `end` puts the one before out of use. Between the two, every running node hears of
the new secret by the watch of etcd, and nodes that start read both.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from warrenmq.cluster.errors import ClusterError
from warrenmq.cluster.metadata.conditions import Unchanged
from warrenmq.cluster.metadata.etcd_metadata import EtcdMetadata
from warrenmq.cluster.metadata.operations import RawPut
from warrenmq.cluster.records import ClusterMeta, decode_record, encode_record, meta_key

# Bytes by chance in a secret.
SECRET_BYTES: Final = 32


class RotationRefused(ClusterError):
    """The step does not fit the state of the rotation; the text is one line."""


class SecretRotation:
    """The rotation in `cluster`, as `metadata` has it; all methods wait for etcd.

    All raise MetadataError, and RotationRefused as far as they say so. `random_bytes` makes
    secrets.
    """

    def __init__(
        self, cluster: str, metadata: EtcdMetadata, random_bytes: Callable[[int], bytes]
    ) -> None:
        self._key = meta_key(cluster)
        self._metadata = metadata
        self._random_bytes = random_bytes

    def begin(self) -> None:
        """Make a new secret; the one before stays in use. Refused while a rotation is under way."""
        meta, revision = self._read()
        if meta.previous_secret:
            raise RotationRefused("a rotation of the secret is under way: end it first")
        self._write(
            msgspec.structs.replace(
                meta,
                secret=self._random_bytes(SECRET_BYTES).hex(),
                previous_secret=meta.secret,
                secret_number=meta.secret_number + 1,
            ),
            revision,
        )

    def begun_at(self) -> int:
        """The decision that began the rotation. Refused if none is under way."""
        meta, revision = self._read()
        if not meta.previous_secret:
            raise RotationRefused("no rotation of the secret is under way")
        return revision

    def end(self, begun_at: int) -> None:
        """Put the secret before out of use, if the rotation is the one that began so."""
        meta, _revision = self._read()
        self._write(msgspec.structs.replace(meta, previous_secret=""), begun_at)

    def _read(self) -> tuple[ClusterMeta, int]:
        found = self._metadata.get(self._key)
        if found is None:
            raise RotationRefused("etcd has no such cluster any more")
        return decode_record(found.value, ClusterMeta), found.mod_revision

    def _write(self, meta: ClusterMeta, revision: int) -> None:
        put = RawPut(self._key, encode_record(meta))
        if self._metadata.commit([Unchanged(self._key, revision)], [put]) is None:
            raise RotationRefused("the record of the cluster has just changed: try again")
