"""Lets only one of the queries that run side by side in a program read with a reader group.

A query takes its group over from whoever had it, so that it can follow a crashed one without a
wait. Two queries of one frame have one group: the second would end the first, and then continue
with half of the messages. The broker cannot tell the two cases apart, since the connection of a
crashed query may look alive for a while. On the driver's machine the kernel can: a query has a
process of its own, which binds the name of a Unix socket. The name is free again when the process
has ended, however it ended.
"""

import errno
import hashlib
import os
import socket
import sys
import time
from typing import Final

from warrenmq.admin.client.client import NodeAddress
from warrenmq.spark.retry import SourceError

# How long a claim waits for the process of a query that was just stopped (s).
CLAIM_TIMEOUT_S: Final = 5.0
_PAUSE_S: Final = 0.05

# The sockets that this process has bound, by process and name: a fork has not claimed anything.
_claims: dict[tuple[int, bytes], socket.socket] = {}


def claim_group(uri: str, group: str) -> None:
    """Claim `group` of the broker at `uri` for as long as this process lives; repeats do nothing.

    Raises SourceError when another process that the same program has started has claimed it, and
    lives on for CLAIM_TIMEOUT_S. Only Linux has such names; elsewhere nothing is claimed.
    """
    if sys.platform != "linux":
        return
    name = _name(NodeAddress(uri), group)
    if (os.getpid(), name) in _claims:
        return
    claim = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    deadline = time.monotonic() + CLAIM_TIMEOUT_S
    while True:
        try:
            claim.bind(name)
            break
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            if time.monotonic() > deadline:
                claim.close()
                raise SourceError(
                    f"reader group '{group}' is in use by another query that runs beside this one: each needs one of its own"
                ) from None
        time.sleep(_PAUSE_S)
    _claims[os.getpid(), name] = claim


def _name(address: NodeAddress, group: str) -> bytes:
    """A name outside of the file system, the same for all queries of a program with this group.

    Spark's JVM starts the process of each of its queries.
    """
    whole = "\n".join((address.where, address.vhost, group))
    digest = hashlib.blake2b(whole.encode(), digest_size=16).hexdigest()
    return f"\0warren-group-{os.getppid()}-{digest}".encode()
