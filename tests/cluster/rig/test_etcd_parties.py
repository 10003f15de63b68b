"""etcd in a network that is disturbed: the majority goes on, a lone member does not."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.awaiting import eventually
from tests.support.cluster.etcd_parties import CLIENTS, etcd_parties, etcdctl
from tests.support.cluster.namespaces import NamespaceNetwork
from tests.support.cluster.networks import Network
from tests.support.cluster.parties import Party, running
from tests.support.etcd import require_etcd

NAMES = ["e1", "e2", "e3"]


@pytest.fixture
def members(network: Network, tmp_path: Path) -> Iterator[list[Party]]:
    """Three members, and a client beside them."""
    require_etcd()
    network.add("client")
    made = etcd_parties(network, NAMES, tmp_path)
    with running(made):
        yield made


def can_write(network: Network, member: str) -> bool:
    """Whether a write through a member succeeds, as the client sees it."""
    address = network.reach("client", member, CLIENTS)
    try:
        etcdctl(network, "client", address, "put", "key", "value")
    except subprocess.CalledProcessError:
        return False
    return True


@pytest.mark.slow
def test_two_of_three_members_serve(network: Network, members: list[Party]) -> None:
    for name in NAMES:
        assert can_write(network, name)
    members[0].kill()
    eventually(lambda: can_write(network, "e2"), "the others go on")
    members[1].freeze()
    assert not can_write(network, "e3")
    members[1].thaw()
    eventually(lambda: can_write(network, "e3"), "two members go on")
    members[0].start()
    eventually(lambda: can_write(network, "e1"), "all members serve")


@pytest.mark.slow
def test_a_client_that_is_cut_off_sees_nothing(network: Network, members: list[Party]) -> None:
    network.cut("client", "e1")
    assert not can_write(network, "e1")
    assert can_write(network, "e2")
    network.heal()
    eventually(lambda: can_write(network, "e1"), "the client is back")


@pytest.mark.slow
def test_an_isolated_member_cannot_write_alone(
    namespaces: NamespaceNetwork, tmp_path: Path
) -> None:
    """Its client in the same place sees it refuse, while the majority goes on."""
    require_etcd()
    made = etcd_parties(namespaces, NAMES, tmp_path)
    namespaces.add("client")
    with running(made):
        namespaces.isolate("e1")
        own = namespaces.reach("e1", "e1", CLIENTS)
        with pytest.raises(subprocess.CalledProcessError):
            etcdctl(namespaces, "e1", own, "put", "key", "value")
        eventually(lambda: can_write(namespaces, "e2"), "the majority goes on")
        namespaces.heal()
        eventually(lambda: can_write(namespaces, "e1"), "the member is back")
