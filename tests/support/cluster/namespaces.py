"""A network of Linux network namespaces around a bridge, without any interface of the host.

Each party has a namespace with one interface, at a port of the bridge in a namespace of its own. A
port in the state "disabled" isolates its party; a wrong hardware address in a party's table of
neighbours parts it from one other. Both lose packets silently, as a broken switch does.

The names of the namespaces begin with the id of the process that made them, so that what a killed
test run left behind is found and removed by the next one.
"""

import contextlib
import functools
import os
import shutil
import signal
import subprocess
from collections.abc import Sequence
from itertools import count
from pathlib import Path

from tests.support.cluster.networks import Address, Network

_NAME = "wrn"
_BRIDGE = "hub"
# Any service may have any port, because each party has an address of its own.
_FIRST_PORT = 7001
# Of nobody.
_WRONG_HARDWARE = "02:00:00:00:00:ff"
# States of a port of a bridge.
_DISABLED = "0"
_FORWARDING = "3"
# What a slow port keeps before it loses packets.
_QUEUE_BYTES = 256 * 1024
_BURST_BYTES = 16 * 1024

_numbers = count()


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise OSError(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout


@functools.cache
def why_no_namespaces() -> str:
    """Why this machine allows no such network; "" if it does."""
    for program in ("ip", "bridge"):
        if shutil.which(program) is None:
            return f"{program} is not installed"
    try:
        with NamespaceNetwork() as network:
            network.add("a")
            network.isolate("a")
    except OSError as error:
        return str(error)
    return ""


class NamespaceNetwork(Network):
    """See the module. Raises OSError where the machine does not allow it."""

    def __init__(self) -> None:
        remove_leftovers()
        self._stem = f"{_NAME}{os.getpid()}-{next(_numbers)}"
        self._hub = f"{self._stem}-{_BRIDGE}"
        # Numbers of the parties, from 1.
        self._parties: dict[str, int] = {}
        self._ports: dict[tuple[str, str], int] = {}
        # Cuts in force: (sender, receiver).
        self._cuts: set[tuple[str, str]] = set()
        self._isolated: set[str] = set()
        self._slow: set[str] = set()
        try:
            _run("ip", "netns", "add", self._hub)
            self._ip(self._hub, "link", "add", _BRIDGE, "type", "bridge")
            self._ip(self._hub, "link", "set", _BRIDGE, "up")
        except OSError:
            self.close()
            raise

    def add(self, party: str) -> None:
        number = self._parties[party] = len(self._parties) + 1
        space = self._space(party)
        _run("ip", "netns", "add", space)
        self._ip(
            self._hub, "link", "add", f"port{number}", "type", "veth",
            "peer", "name", "eth0", "netns", space,
        )  # fmt: skip
        self._ip(self._hub, "link", "set", f"port{number}", "master", _BRIDGE, "up")
        self._ip(space, "addr", "add", f"{self._host(party)}/24", "dev", "eth0")
        self._ip(space, "link", "set", "eth0", "up")
        self._ip(space, "link", "set", "lo", "up")

    def listen(self, party: str, service: str) -> Address:
        port = self._ports.setdefault((party, service), _FIRST_PORT + len(self._ports))
        return self._host(party), port

    def reach(self, client: str, server: str, service: str) -> Address:
        return self.listen(server, service)

    def prefix(self, party: str) -> Sequence[str]:
        # `ip` replaces itself by the command, so the process has the id that the caller sees.
        return ("ip", "netns", "exec", self._space(party))

    def cut_one_way(self, sender: str, receiver: str) -> None:
        self._cuts.add((sender, receiver))
        self._ip(
            self._space(sender), "neigh", "replace", self._host(receiver),
            "lladdr", _WRONG_HARDWARE, "dev", "eth0", "nud", "permanent",
        )  # fmt: skip

    def heal_one_way(self, sender: str, receiver: str) -> None:
        self._cuts.remove((sender, receiver))
        self._ip(self._space(sender), "neigh", "del", self._host(receiver), "dev", "eth0")

    def isolate(self, party: str) -> None:
        self._isolated.add(party)
        self._set_port(party, _DISABLED)

    def slow(self, party: str, bytes_per_s: int) -> None:
        """Let everything that others send to a party arrive at this rate, until `heal`.

        Raises OSError where `tc` or its token buckets are missing.
        """
        self._slow.add(party)
        _run(
            "tc", "-n", self._hub, "qdisc", "replace", "dev", f"port{self._parties[party]}",
            "root", "tbf", "rate", f"{8 * bytes_per_s}bit",
            "burst", str(_BURST_BYTES), "limit", str(_QUEUE_BYTES),
        )  # fmt: skip

    def quicken(self, party: str) -> None:
        """End what `slow` does to a party."""
        self._slow.remove(party)
        _run("tc", "-n", self._hub, "qdisc", "del", "dev", f"port{self._parties[party]}", "root")

    def heal(self) -> None:
        for party in list(self._slow):
            self.quicken(party)
        for party in self._isolated:
            self._set_port(party, _FORWARDING)
        for sender, receiver in list(self._cuts):
            self.heal_one_way(sender, receiver)
        self._isolated.clear()

    def close(self) -> None:
        for party in self._parties:
            _remove(self._space(party))
        _remove(self._hub)

    def _set_port(self, party: str, state: str) -> None:
        port = f"port{self._parties[party]}"
        _run("bridge", "-n", self._hub, "link", "set", "dev", port, "state", state)

    def _host(self, party: str) -> str:
        return f"10.77.0.{self._parties[party]}"

    def _space(self, party: str) -> str:
        return f"{self._stem}-{self._parties[party]}"

    def _ip(self, space: str, *arguments: str) -> None:
        _run("ip", "-n", space, *arguments)


def namespaces_of(pid: int) -> list[str]:
    """Names of the namespaces that a process has made."""
    names = [line.split()[0] for line in _run("ip", "netns", "list").splitlines() if line]
    return [name for name in names if name.startswith(f"{_NAME}{pid}-")]


def remove_leftovers() -> None:
    """Remove the namespaces of processes that have ended, with all that runs in them."""
    names = [line.split()[0] for line in _run("ip", "netns", "list").splitlines() if line]
    for name in names:
        pid = name.removeprefix(_NAME).partition("-")[0]
        if name.startswith(_NAME) and pid.isdecimal() and not Path("/proc", pid).exists():
            _remove(name)


def _remove(space: str) -> None:
    """Kill what runs in a namespace, and remove it; does nothing if it is gone."""
    with contextlib.suppress(OSError):
        for pid in _run("ip", "netns", "pids", space).split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
        _run("ip", "netns", "del", space)
