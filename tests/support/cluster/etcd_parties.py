"""etcd members in their places in a network that can be disturbed.

In a network of relays the members reach each other directly, because all of them must be told the
same addresses; what other parties have with them goes through relays.
"""

import subprocess
from pathlib import Path

from tests.support.cluster.networks import Address, Network, text_of
from tests.support.cluster.parties import Party

CLIENTS = "etcd"
PEERS = "etcd-peers"
# Of elections (ms): short for a quick start, long enough for a loaded machine.
_HEARTBEAT_MS = 50
_ELECTION_MS = 500


def etcd_parties(network: Network, names: list[str], directory: Path) -> list[Party]:
    """The members of one cluster, not started; adds them to the network."""
    for name in names:
        network.add(name)
    peers = {name: f"http://{text_of(network.listen(name, PEERS))}" for name in names}
    cluster = ",".join(f"{name}={url}" for name, url in peers.items())
    members = []
    for name in names:
        clients = f"http://{text_of(network.listen(name, CLIENTS))}"
        options = {
            "name": name,
            "data-dir": str(directory / name),
            "listen-client-urls": clients,
            "advertise-client-urls": clients,
            "listen-peer-urls": peers[name],
            "initial-advertise-peer-urls": peers[name],
            "initial-cluster": cluster,
            "heartbeat-interval": str(_HEARTBEAT_MS),
            "election-timeout": str(_ELECTION_MS),
            "logger": "zap",
        }
        command = ["etcd", *(f"--{option}={value}" for option, value in options.items())]
        members.append(Party(name, network, directory, command, "serving client traffic"))
    return members


def etcd_urls(network: Network, client: str, names: list[str]) -> list[str]:
    """Where a party finds the members."""
    return [f"http://{text_of(network.reach(client, name, CLIENTS))}" for name in names]


def etcdctl(network: Network, client: str, address: Address, *arguments: str) -> str:
    """Run `etcdctl` in the place of a party. Raises CalledProcessError if it fails or hangs."""
    command = [*network.prefix(client), "etcdctl", "--endpoints", f"http://{text_of(address)}"]
    command += ["--command-timeout", "2s", "--dial-timeout", "2s", *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout
