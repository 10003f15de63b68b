"""Both networks of the demo part one party from the others, and join them again."""

import subprocess
import sys
from collections.abc import Iterator

import pytest

from demo.cluster.namespaces import NamespaceNetwork
from demo.cluster.networks import Network
from demo.cluster.relays import RelayNetwork
from tests.support.skips import does_not_apply

SERVER = """
import socket, sys
listener = socket.create_server((sys.argv[1], int(sys.argv[2])))
print("ready", flush=True)
while True:
    client, _ = listener.accept()
    client.sendall(client.recv(1))
"""
# Asks when it is told to; for the answer it waits for so many seconds.
CLIENT = """
import socket, sys
sys.stdin.readline()
client = socket.create_connection((sys.argv[1], int(sys.argv[2])), float(sys.argv[3]))
client.sendall(b"x")
assert client.recv(1) == b"x"
"""


@pytest.fixture(params=[NamespaceNetwork, RelayNetwork])
def network(request: pytest.FixtureRequest) -> Iterator[Network]:
    try:
        network: Network = request.param()
    except OSError as error:
        does_not_apply(str(error))
    with network:
        for party in ("a", "b", "c"):
            network.add(party)
        yield network


def python(network: Network, party: str, program: str, *arguments: str) -> subprocess.Popen[str]:
    command = [*network.prefix(party), sys.executable, "-c", program, *arguments]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    network.follow(party, process.pid)
    return process


def answers(network: Network, client: str, address: str, seconds: float) -> bool:
    """Whether a client in its place gets an answer."""
    host, _, port = address.rpartition(":")
    process = python(network, client, CLIENT, host, port, str(seconds))
    process.communicate("go\n")
    return process.returncode == 0


@pytest.mark.slow
def test_a_party_is_isolated_and_comes_back(network: Network) -> None:
    host, _, port = network.listen("a", "echo").rpartition(":")
    server = python(network, "a", SERVER, host, port)
    try:
        assert server.stdout is not None and server.stdout.readline() == "ready\n"
        # "": whoever connects; a relay finds out who that is.
        addresses = {client: network.reach(client, "a", "echo") for client in ("b", "c", "")}
        assert answers(network, "b", addresses["b"], 30)
        assert answers(network, "b", addresses[""], 30)
        network.isolate("b")
        assert not answers(network, "b", addresses["b"], 0.3)
        assert not answers(network, "b", addresses[""], 0.3)
        assert answers(network, "c", addresses["c"], 30)
        assert answers(network, "c", addresses[""], 30)
        network.heal()
        assert answers(network, "b", addresses["b"], 30)
        network.isolate("a")
        assert not answers(network, "c", addresses["c"], 0.3)
        network.heal()
    finally:
        server.kill()
        server.communicate()
    # Its machine refuses connections at once.
    network.follow("a", None)
    assert not answers(network, "b", addresses["b"], 30)
