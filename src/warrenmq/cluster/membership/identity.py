"""The identity of a data directory in its cluster: a file beside the node's own definitions.

The file ties the directory to one cluster and one member. So a directory that was emptied, copied
for another node, or taken to a cluster of the same name is recognised before anything is served.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from warrenmq.cluster.errors import ClusterError
from warrenmq.store.disk.files import sync_directory
from warrenmq.store.disk.roomy_file import read_roomy, remove_roomy, write_roomy

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
        data = read_roomy(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise IdentityError(f"{path}: {error.strerror}") from None
    try:
        identity = msgspec.json.decode(data, type=DirectoryIdentity)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise IdentityError(f"{path} is damaged: {error}") from None
    if identity.format > FORMAT:
        raise IdentityError(f"{path} has format {identity.format}; this warren reads {FORMAT}")
    return identity


def write_identity(directory: Path, identity: DirectoryIdentity) -> None:
    """Write the identity of a data directory, durably and whole. Raises OSError."""
    write_roomy(directory / IDENTITY_NAME, msgspec.json.encode(identity))
    # Nodes that knew no room have left this file on full disks.
    (directory / f".{IDENTITY_NAME}.incomplete").unlink(missing_ok=True)


def forget_identity(directory: Path) -> None:
    """Let a data directory belong to no cluster. Raises OSError."""
    remove_roomy(directory / IDENTITY_NAME)
    sync_directory(directory)
