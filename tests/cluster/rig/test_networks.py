"""Cuts of both networks, freezes and deaths of parties, on processes that ping each other."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.awaiting import eventually
from tests.support.cluster import echo_party
from tests.support.cluster.namespaces import NamespaceNetwork, namespaces_of
from tests.support.cluster.networks import Network, text_of
from tests.support.cluster.parties import Party, running
from tests.support.cluster.relays import RelayNetwork

NAMES = ("a", "b", "c")
SERVICE = "echo"
# Events elsewhere that show that a cut lasts: each pair has hundreds of pings a second.
MANY = 30


class Mesh:
    """Three parties that ping each other."""

    def __init__(self, network: Network, directory: Path) -> None:
        self.network = network
        for name in NAMES:
            network.add(name)
        self.parties = {name: self._party(name, directory) for name in NAMES}
        # Lost connections that do not count, by party and other party.
        self._losses: dict[tuple[str, str], int] = {}

    def _party(self, name: str, directory: Path) -> Party:
        host, port = self.network.listen(name, SERVICE)
        peers = [
            f"{other}={text_of(self.network.reach(name, other, SERVICE))}"
            for other in NAMES
            if other != name
        ]
        command = [sys.executable, str(echo_party.__file__), host, str(port), name, *peers]
        return Party(name, self.network, directory, command, "ready")

    def count(self, party: str, event: str) -> int:
        """How often a party has said an event."""
        return self.parties[party].log().count(f"{event}\n")

    def ignore_losses(self) -> None:
        """Ignore the connections that were lost so far, as while the others were starting."""
        self._losses = {
            (one, other): self.count(one, f"lost {other}") for one in NAMES for other in NAMES
        }

    def losses(self, party: str, other: str) -> int:
        """How many connections to another one a party has lost."""
        return self.count(party, f"lost {other}") - self._losses[party, other]

    def await_more(self, party: str, event: str, count: int = MANY) -> None:
        """Wait until a party has said an event `count` times more."""
        goal = self.count(party, event) + count
        eventually(lambda: self.count(party, event) >= goal, f"{party}: {event}")

    def await_all(self) -> None:
        """Wait until all pairs have pinged each other."""
        for one in NAMES:
            for other in NAMES:
                if one != other:
                    self.await_more(one, f"pong {other}", 2)

    def await_silence(self, party: str, event: str, elsewhere: tuple[str, str]) -> None:
        """Wait until a party says an event no more while events go on elsewhere."""

        def is_silent() -> bool:
            before = self.count(party, event)
            self.await_more(*elsewhere)
            return self.count(party, event) == before

        eventually(is_silent, f"{party} is silent about {event}")


@pytest.fixture
def mesh(network: Network, tmp_path: Path) -> Iterator[Mesh]:
    made = Mesh(network, tmp_path)
    with running(list(made.parties.values())):
        made.await_all()
        made.ignore_losses()
        yield made


def test_a_cut_parts_two_and_heals(mesh: Mesh) -> None:
    """Both still reach the third; their connections continue afterwards."""
    mesh.network.cut("a", "b")
    mesh.await_silence("a", "pong b", ("a", "pong c"))
    mesh.await_silence("b", "pong a", ("b", "pong c"))
    mesh.await_more("c", "pong a")
    mesh.await_more("c", "pong b")
    mesh.network.heal()
    mesh.await_all()
    assert mesh.losses("a", "b") == 0


def test_a_cut_in_one_direction(mesh: Mesh) -> None:
    """What b sends arrives at a; nothing of a arrives at b, so b hears no answer either."""
    mesh.network.cut_one_way("a", "b")
    mesh.await_silence("b", "heard a", ("b", "heard c"))
    mesh.await_silence("b", "pong a", ("b", "pong c"))
    mesh.network.heal_one_way("a", "b")
    mesh.await_all()


def test_an_isolated_party_reaches_nobody(mesh: Mesh) -> None:
    mesh.network.isolate("c")
    for one in ("a", "b"):
        mesh.await_silence("c", f"pong {one}", ("a", "pong b"))
        mesh.await_silence(one, "pong c", ("a", "pong b"))
    mesh.network.heal()
    mesh.await_all()


def test_a_frozen_party_is_silent_and_keeps_its_connections(mesh: Mesh) -> None:
    mesh.parties["b"].freeze()
    mesh.await_silence("a", "pong b", ("a", "pong c"))
    mesh.parties["b"].thaw()
    mesh.await_all()
    assert mesh.losses("a", "b") == 0


def test_a_killed_party_comes_back_at_its_address(mesh: Mesh) -> None:
    mesh.parties["b"].kill()
    eventually(lambda: mesh.losses("a", "b") >= 1, "a notices")
    mesh.parties["b"].start()
    mesh.await_all()
    assert mesh.parties["b"].stop() < 0


def test_a_party_that_does_not_start_is_reported(network: Network, tmp_path: Path) -> None:
    network.add("a")
    party = Party("a", network, tmp_path, [sys.executable, "-c", "print('no')"], "ready")
    with pytest.raises(AssertionError, match="has ended:\nno"), running([party]):
        pass


# -- relays only -----------------------------------------------------------------------------------


@pytest.fixture
def relayed(relays: RelayNetwork, tmp_path: Path) -> Iterator[Mesh]:
    made = Mesh(relays, tmp_path)
    with running(list(made.parties.values())):
        made.await_all()
        made.ignore_losses()
        yield made


def test_a_half_open_link_swallows_until_it_is_reset(relays: RelayNetwork, relayed: Mesh) -> None:
    link = relays.between("a", "b")
    link.is_half_open = True
    relayed.await_silence("a", "pong b", ("b", "pong a"))
    assert relayed.losses("a", "b") == 0
    link.is_half_open = False
    link.reset()
    eventually(lambda: relayed.losses("a", "b") == 1, "a notices")
    relayed.await_all()
    assert relayed.losses("b", "a") == 0


def test_a_delay_and_a_bandwidth_have_their_effect(relays: RelayNetwork) -> None:
    """A round takes both delays at least; bytes take their time at least."""
    for name in ("a", "b"):
        relays.add(name)
    host, port = relays.listen("b", SERVICE)
    link = relays.between("a", "b")
    echo = [sys.executable, str(echo_party.__file__), host, str(port), "b"]
    with subprocess.Popen(echo, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
            address = relays.reach("a", "b", SERVICE)
            link.delay_ms = 50
            assert round_trip_s(address, 1) >= 0.1
            link.delay_ms = 0
            link.bytes_per_s = 50_000
            assert round_trip_s(address, 10_000) >= 0.2
        finally:
            process.kill()


def round_trip_s(address: tuple[str, int], size: int) -> float:
    """How long a line of `size` bytes needs to come back."""
    with socket.create_connection(address) as connection:
        started = time.monotonic()
        connection.sendall(b"x" * size + b"\n")
        left = size + 1
        while left:
            data = connection.recv(left)
            assert data, "the connection has ended"
            left -= len(data)
        return time.monotonic() - started


# -- namespaces only -------------------------------------------------------------------------------


def test_a_network_leaves_nothing_behind(namespaces: NamespaceNetwork, tmp_path: Path) -> None:
    """Neither namespaces nor processes that nobody ended."""
    # With the hub of this network, and those of the cluster that other tests share.
    before = set(namespaces_of(os.getpid()))
    namespaces.add("a")
    party = Party("a", namespaces, tmp_path, ["sh", "-c", "echo ready; exec sleep 600"], "ready")
    party.start()
    assert len(set(namespaces_of(os.getpid())) - before) == 1
    namespaces.close()
    after = set(namespaces_of(os.getpid()))
    assert after < before and len(before - after) == 1
    assert party.await_end() < 0


def test_leftovers_of_a_killed_run_are_removed(
    namespaces: NamespaceNetwork, tmp_path: Path
) -> None:
    """A run that is killed leaves namespaces and processes; the next network removes them."""
    script = (
        "import os, signal, pathlib\n"
        "from tests.support.cluster.namespaces import NamespaceNetwork\n"
        "from tests.support.cluster.parties import Party\n"
        "network = NamespaceNetwork()\n"
        "network.add('a')\n"
        f"party = Party('a', network, pathlib.Path({str(tmp_path)!r}),\n"
        "    ['sh', '-c', 'echo ready; exec sleep 600'], 'ready')\n"
        "party.start()\n"
        "print(party.pid, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    root = Path(__file__).parent.parent.parent.parent
    run = subprocess.Popen(
        [sys.executable, "-c", script], cwd=root, stdout=subprocess.PIPE, text=True
    )
    output, _ = run.communicate()
    assert namespaces_of(run.pid)
    with NamespaceNetwork():
        assert namespaces_of(run.pid) == []
    eventually(lambda: not Path("/proc", output.strip()).exists(), "the party has ended")
