"""`python -m demo.cluster.watch`: tells what `warrenctl mirror_status` would, in its place.

One process for all questions of the demo: a start of `warrenctl` for each would take more of a
small machine than the nodes do. A question is a line "URI QUEUE", the answer a line of JSON, null
while the node cannot say.
"""

import sys

import msgspec

from warrenmq.admin.client.client import (
    AdminClient,
    AdminRefusedError,
    NodeAddress,
    NodeUnreachableError,
)
from warrenmq.admin.protocol.mirrors import DescribeMirrors, MirrorStatus


def main() -> None:
    for line in sys.stdin:
        uri, queue = line.split()
        print(msgspec.json.encode(status(uri, queue)).decode(), flush=True)


def status(uri: str, queue: str) -> MirrorStatus | None:
    """What a node knows of the copies of a queue; None for nothing."""
    request = DescribeMirrors(vhost="/", queue=queue.encode())
    try:
        with AdminClient(NodeAddress(uri), "demo") as client:
            return client.request(request, MirrorStatus)
    except (AdminRefusedError, NodeUnreachableError):
        return None


if __name__ == "__main__":
    main()
