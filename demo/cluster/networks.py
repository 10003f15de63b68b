"""The network of the demo: a place for each party, and a cut that parts one from all others.

| network | for | a cut |
|---|---|---|
| `namespaces.py` | Linux, as root, with `ip` and `bridge` | packets disappear |
| `relays.py` | every machine | bytes wait in a relay, which all connections of a party go through |
"""

import socket
from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self

HOST = "127.0.0.1"


def text_of(address: tuple[str, int]) -> str:
    """HOST:PORT."""
    return f"{address[0]}:{address[1]}"


def held_port() -> tuple[int, socket.socket]:
    """A port that nobody else gets while the socket, which never listens, is open."""
    holder = socket.socket()
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    holder.bind((HOST, 0))
    port: int = holder.getsockname()[1]
    return port, holder


class Network(ABC):
    """Parties by name; a context manager that leaves nothing of the network behind."""

    # What a cut is made of, for the report.
    means = ""

    @abstractmethod
    def add(self, party: str) -> None:
        """Give a party its place. Raises OSError."""

    @abstractmethod
    def listen(self, party: str, service: str) -> str:
        """Where the party's service listens, as HOST:PORT; the same at each call."""

    @abstractmethod
    def reach(self, client: str, server: str, service: str) -> str:
        """Where a party finds the service of another one; `client` is "" for all of them."""

    @abstractmethod
    def prefix(self, party: str) -> list[str]:
        """What precedes the commands of the party."""

    def follow(self, party: str, pid: int | None) -> None:
        """Learn that the party runs as the process `pid` now, or (None) that it has ended."""
        del party, pid

    def open(self, party: str) -> None:
        """Learn that the party, started again, accepts connections."""
        del party

    @abstractmethod
    def isolate(self, party: str) -> None:
        """Part a party from all others."""

    @abstractmethod
    def heal(self) -> None:
        """End the cut."""

    @abstractmethod
    def close(self) -> None:
        """Remove the network; its processes have ended before."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
