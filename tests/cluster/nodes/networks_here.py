"""The network that this machine allows."""

from tests.support.cluster.namespaces import NamespaceNetwork, why_no_namespaces
from tests.support.cluster.networks import Network
from tests.support.cluster.relays import RelayNetwork


def make_network() -> Network:
    """A network of namespaces where the machine allows one, else of relays."""
    return RelayNetwork() if why_no_namespaces() else NamespaceNetwork()
