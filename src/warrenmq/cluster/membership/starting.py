"""The start of a node in its cluster, as far as it comes before the data directory is opened.

The steps wait for etcd, and for whatever else the node has to wait for; the log says for what. They
block: nothing else runs in the process yet. A node serves no queue from what it remembers: it reads
from etcd which of its queues the cluster still has.
"""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from warrenmq.broker.definitions.metadata import Change, Definitions
from warrenmq.cluster.membership.identity import DirectoryIdentity, read_identity, write_identity
from warrenmq.cluster.membership.joining import Membership, NotAdmitted, NotYet
from warrenmq.cluster.membership.own_definitions import own_definitions, shared_definitions
from warrenmq.cluster.metadata.errors import EtcdUnavailable
from warrenmq.cluster.metadata.etcd_metadata import EtcdMetadata
from warrenmq.cluster.records import ClusterMeta
from warrenmq.vocabulary.fail_points import fail_point

logger = logging.getLogger("warren.cluster")

# Pause before a step is tried again (s).
_PAUSE_S: Final = 0.5
# How long another run of the node has to accept a connection, if it is alive (s).
_PROBE_S: Final = 1.0

_Result = TypeVar("_Result")


class Patience:
    """A pause that may be repeated for `seconds`, and then raises NotYet."""

    def __init__(self, seconds: float) -> None:
        self._until = time.monotonic() + seconds

    def pause(self, seconds: float) -> None:
        """Sleep; see `ClusterStart`."""
        if time.monotonic() > self._until:
            raise NotYet("etcd, or the end of an earlier run, for too long; the log says for which")
        time.sleep(seconds)


class ClusterStart:
    """The start of the node `node`; `secret` is the configured one, or ""."""

    def __init__(
        self,
        node: str,
        secret: str,
        membership: Membership,
        metadata: EtcdMetadata,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._node = node
        self._secret = secret
        self._membership = membership
        self._metadata = metadata
        self._pause = pause
        # The thing that the start waits for, or has waited for.
        self.reason = ""
        self._incarnation = 0
        # Set by `open`: the cluster, the directory's identity in this run, and the definitions of
        # the cluster with their revision.
        self.meta: ClusterMeta | None = None
        self.identity: DirectoryIdentity | None = None
        self.shared = Definitions()
        self.revision = 0

    def open(
        self, directory: Path, rows: Definitions, first: list[Change]
    ) -> tuple[Definitions, list[Change]]:
        """Enter the cluster with the data directory `directory`, which the caller has locked.

        `rows`: the node's own definitions; `first`: those that a new cluster begins with if it has
        none. Returns what the directory is to be opened with, and the changes of its rows. Raises
        NotAdmitted, IdentityError, OSError, or MetadataError for definitions that cannot be read.
        """
        meta, identity = self._wait(lambda: self._enter(directory, rows, first))
        self._wait(lambda: self._end_earlier_run(identity))
        self._wait(self._load)
        # Read again: the watch begins after the definitions, and the secret may have changed
        # between the two.
        self.meta = self._wait(self._membership.meta) or meta
        self.identity = identity
        return own_definitions(rows, self.shared, self._node.encode())

    def _enter(
        self, directory: Path, rows: Definitions, first: list[Change]
    ) -> tuple[ClusterMeta, DirectoryIdentity]:
        """Find the cluster or make it, and become a member; can be repeated after any crash."""
        membership = self._membership
        stored = known = read_identity(directory)
        meta = membership.meta()
        if known is not None:
            membership.check_directory(known, meta)
        if known is None or not known.has_joined:
            known = membership.new_identity(known, meta, len(rows.queues) > 0)
        if self._incarnation == 0:
            self._incarnation = known.incarnation + 1
        identity = msgspec.structs.replace(known, incarnation=self._incarnation)
        if identity != stored:
            write_identity(directory, identity)
        if meta is None:
            membership.make_cluster(
                identity, self._secret, shared_definitions(rows, first, self._node.encode())
            )
            fail_point("cluster.made")
            logger.info("the cluster is made, with the definitions of this node")
            meta = membership.meta()
            assert meta is not None
        if identity.has_joined:
            latest = membership.check_member(identity)
            if latest >= self._incarnation:
                identity = self._notice_restored(identity, latest)
                write_identity(directory, identity)
        else:
            membership.join(identity)
            fail_point("member.joined")
            identity = msgspec.structs.replace(identity, has_joined=True)
            write_identity(directory, identity)
        return meta, identity

    def _notice_restored(self, known: DirectoryIdentity, latest: int) -> DirectoryIdentity:
        """The identity of a directory whose content is older than the node's `latest` run."""
        logger.warning(
            "the data directory is older than run %d of this node: its copies of mirrored queues "
            "do not count as complete",
            latest,
        )
        self._incarnation = latest + 1
        return msgspec.structs.replace(known, incarnation=latest + 1, restored=latest)

    def _wait(self, step: Callable[[], _Result]) -> _Result:
        """The result of `step`, which is repeated while the node has to wait.

        The log says why from the second attempt on: nodes that start together meet, and do not
        wait for longer than one pause then.
        """
        is_first = True
        logged = ""
        while True:
            try:
                return step()
            except NotYet as error:
                reason = f"waiting for {error}"
            except EtcdUnavailable as error:
                reason = f"waiting for etcd: {error}"
            self.reason = reason
            if not is_first and reason != logged:
                logger.warning("%s", reason)
                logged = reason
            is_first = False
            self._pause(_PAUSE_S)

    def _end_earlier_run(self, identity: DirectoryIdentity) -> None:
        """Remove what an earlier run has left in etcd, once it is certain that it has ended."""
        earlier = self._membership.earlier_run()
        if earlier is None:
            return
        record, birth = earlier
        place = f"{record.host}:{record.port}"
        if record.replica_id != identity.replica_id:
            raise NotAdmitted(f"a node '{self._node}' with another data directory runs at {place}")
        try:
            socket.create_connection((record.host, record.port), _PROBE_S).close()
        except ConnectionRefusedError:
            self._membership.end_run(birth)
        except OSError as error:
            raise NotYet(f"the lease of the earlier run at {place} to end ({error})") from None
        else:
            raise NotYet(f"the end of the node of this name that answers at {place}")

    def _load(self) -> None:
        self.shared, self.revision = self._metadata.load_at()
        fail_point("definitions.loaded")
        self._membership.forget_transient(self.shared)
