"""Whether a node may be stopped: queues that are lost to their clients meanwhile.

A queue goes on without its master's node when another node that runs has a synchronised copy. That
is so for classic mirrored queues and for quorum queues alike.
"""

from typing import Final

from warrenmq.admin.client.definitions import Ask
from warrenmq.admin.protocol.control import List, Rows

_COLUMNS: Final = ("name", "type", "slave_nodes", "synchronised_slave_nodes", "online")


def critical_queues(ask: Ask, kind: str) -> list[tuple[str, str]]:
    """The queues of `kind` whose master is on the node, and that no other node can take over.

    As (vhost, name). A classic queue that is not mirrored is not meant to outlive its node. Asks
    for all vhosts, which needs the tag monitoring.
    """
    found = []
    for (vhost,) in ask(List(what="vhosts", columns=["name"]), Rows).rows:
        request = List(what="queues", columns=list(_COLUMNS), vhost=vhost, which="local")
        for name, its_kind, mirrors, synchronised, online in ask(request, Rows).rows:
            is_meant = its_kind == kind and (kind == "quorum" or mirrors is not None)
            if is_meant and not set(synchronised or ()) & set(online or ()):
                found.append((vhost, name))
    return found
