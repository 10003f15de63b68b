"""What a data directory remembers of its cluster: a file beside the node's own definitions.

The file ties the directory to one cluster and one member. So a directory that was emptied, copied
for another node, or taken to a cluster of the same name is recognised before anything is served.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import msgspec

from warrenmq.cluster.errors import ClusterError

IDENTITY_NAME: Final = "cluster.json"
FORMAT: Final = 1


class IdentityError(ClusterError):
    """The file cannot be used; the text is one line."""


class DirectoryIdentity(msgspec.Struct, frozen=True):
    """The member that a data directory belongs to.

    `cluster` and `cluster_id` name the cluster, `node` the member, `replica_id` the directory.
    `incarnation`: the number of the run, one higher at each start. `restored`: the run before which
    an older content of the directory was put in place, the last time that this happened; 0: never.
    `has_joined`: the cluster has the member; before, only the node knows that it is about to join.
    """

    cluster: str
    cluster_id: str
    node: str
    replica_id: str
    incarnation: int = 0
    restored: int = 0
    has_joined: bool = False
    format: int = FORMAT


def read_identity(directory: Path) -> DirectoryIdentity | None:
    """The identity of a data directory, None if it has joined no cluster. Raises IdentityError."""
    path = directory / IDENTITY_NAME
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise IdentityError(f"{path}: {error.strerror}") from None
    try:
        identity = msgspec.json.decode(data, type=DirectoryIdentity)
    except msgspec.DecodeError as error:
        raise IdentityError(f"{path} is damaged: {error}") from None
    if identity.format > FORMAT:
        raise IdentityError(f"{path} has format {identity.format}; this warren reads {FORMAT}")
    return identity


def write_identity(directory: Path, identity: DirectoryIdentity) -> None:
    """Write the identity of a data directory, durably and whole. Raises OSError."""
    path = directory / IDENTITY_NAME
    unfinished = path.with_name(f".{IDENTITY_NAME}.incomplete")
    descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o640)
    try:
        os.write(descriptor, msgspec.json.encode(identity))
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    unfinished.rename(path)
    _sync_directory(directory)


def forget_identity(directory: Path) -> None:
    """Let a data directory belong to no cluster. Raises OSError."""
    (directory / IDENTITY_NAME).unlink(missing_ok=True)
    _sync_directory(directory)


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
