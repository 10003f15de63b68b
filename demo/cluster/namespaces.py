"""A network of Linux network namespaces around a bridge, without any interface of the host.

Each party has a namespace with one interface, at a port of the bridge in a namespace of its own. A
port in the state "disabled" isolates its party: packets disappear, as in a broken switch.

The names of the namespaces begin with the id of the process that made them, so that the next demo
removes what a killed one has left behind.
"""

import contextlib
import os
import signal
import subprocess
from pathlib import Path

from demo.cluster.networks import Network, text_of

_NAME = "wrd"
_BRIDGE = "hub"
# Any service may have any port, because each party has an address of its own.
_FIRST_PORT = 7001
# States of a port of a bridge.
_DISABLED = "0"
_FORWARDING = "3"


class NamespaceNetwork(Network):
    """See the module. Raises OSError where the machine does not allow it."""

    means = "network namespaces"

    def __init__(self) -> None:
        _remove_leftovers()
        self._hub = f"{_NAME}{os.getpid()}-{_BRIDGE}"
        # Numbers of the parties, from 1.
        self._parties: dict[str, int] = {}
        self._ports: dict[tuple[str, str], int] = {}
        self._isolated: set[str] = set()
        try:
            _run("ip", "netns", "add", self._hub)
            self._ip(self._hub, "link", "add", _BRIDGE, "type", "bridge")
            self._ip(self._hub, "link", "set", _BRIDGE, "up")
            # Whether a cut is possible shows only at a port.
            self.add("probe")
            self._set_port("probe", _DISABLED)
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

    def listen(self, party: str, service: str) -> str:
        port = self._ports.setdefault((party, service), _FIRST_PORT + len(self._ports))
        return text_of((self._host(party), port))

    def reach(self, client: str, server: str, service: str) -> str:
        return self.listen(server, service)

    def prefix(self, party: str) -> list[str]:
        # `ip` replaces itself by the command, so the process has the id that the caller sees.
        return ["ip", "netns", "exec", self._space(party)]

    def isolate(self, party: str) -> None:
        self._isolated.add(party)
        self._set_port(party, _DISABLED)

    def heal(self) -> None:
        for party in self._isolated:
            self._set_port(party, _FORWARDING)
        self._isolated.clear()

    def close(self) -> None:
        for party in self._parties:
            _remove(self._space(party))
        _remove(self._hub)

    def _set_port(self, party: str, state: str) -> None:
        port = f"port{self._parties[party]}"
        _run("bridge", "-n", self._hub, "link", "set", "dev", port, "state", state)

    def _host(self, party: str) -> str:
        return f"10.78.0.{self._parties[party]}"

    def _space(self, party: str) -> str:
        return f"{_NAME}{os.getpid()}-{self._parties[party]}"

    def _ip(self, space: str, *arguments: str) -> None:
        _run("ip", "-n", space, *arguments)


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise OSError(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout


def _remove_leftovers() -> None:
    """Remove the namespaces of demos that have ended, with all that runs in them."""
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
