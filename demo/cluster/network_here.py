"""The network that this machine allows."""

import contextlib

from demo.cluster.namespaces import NamespaceNetwork
from demo.cluster.networks import Network
from demo.cluster.relays import RelayNetwork


def network_here(has_relays: bool = False) -> Network:
    """Network namespaces where the machine allows them, else relays; `has_relays`: always those."""
    if not has_relays:
        with contextlib.suppress(OSError):
            return NamespaceNetwork()
    return RelayNetwork()
