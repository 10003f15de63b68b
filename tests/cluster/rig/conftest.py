"""Both kinds of network: each test of the rig runs on namespaces and on relays."""

from collections.abc import Iterator

import pytest

from tests.support.cluster.namespaces import NamespaceNetwork, why_no_namespaces
from tests.support.cluster.networks import Network
from tests.support.cluster.relays import RelayNetwork
from tests.support.skips import does_not_apply


@pytest.fixture
def namespaces() -> Iterator[NamespaceNetwork]:
    """A network of namespaces."""
    if reason := why_no_namespaces():
        # Relays test the same cuts on every machine.
        does_not_apply(f"no network namespaces: {reason}")
    with NamespaceNetwork() as network:
        yield network


@pytest.fixture
def relays() -> Iterator[RelayNetwork]:
    """A network of relays."""
    with RelayNetwork() as network:
        yield network


@pytest.fixture(params=["namespaces", "relays"])
def network(request: pytest.FixtureRequest) -> Network:
    """One of the two."""
    found = request.getfixturevalue(request.param)
    assert isinstance(found, Network)
    return found
