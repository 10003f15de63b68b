"""A network between named parties that can be disturbed; `namespaces.py` and `relays.py` are two.

A party listens where `listen` says, and finds another party's service where `reach` says; its
command runs behind `prefix`. A cut loses nothing that TCP does not lose: connections that it
interrupts continue after `heal`.

| | namespaces | relays |
|---|---|---|
| runs | as root, with `ip` | everywhere |
| a cut | packets disappear | bytes wait in the relay |
| a new connection over a cut | finds nobody | is accepted, and waits |
| delay, bandwidth, half-open, reset | no | yes, see `RelayNetwork.between` |
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from types import TracebackType
from typing import Self

Address = tuple[str, int]


def text_of(address: Address) -> str:
    """HOST:PORT."""
    return f"{address[0]}:{address[1]}"


class Network(ABC):
    """Parties and the means to part them; a context manager that removes all of it."""

    @abstractmethod
    def add(self, party: str) -> None:
        """Give a party its place."""

    @abstractmethod
    def listen(self, party: str, service: str) -> Address:
        """Where the party's service listens; the same at each call."""

    @abstractmethod
    def reach(self, client: str, server: str, service: str) -> Address:
        """Where a party finds the service of another one."""

    @abstractmethod
    def prefix(self, party: str) -> Sequence[str]:
        """What precedes the command of the party's processes."""

    @abstractmethod
    def cut_one_way(self, sender: str, receiver: str) -> None:
        """Let nothing from `sender` arrive at `receiver`."""

    @abstractmethod
    def heal_one_way(self, sender: str, receiver: str) -> None:
        """End one cut, which must be in force."""

    @abstractmethod
    def isolate(self, party: str) -> None:
        """Cut a party from all others."""

    @abstractmethod
    def heal(self) -> None:
        """End all cuts."""

    @abstractmethod
    def close(self) -> None:
        """End the network, and all processes that have their place only in it."""

    def cut(self, one: str, other: str) -> None:
        """Cut two parties from each other; both may still reach the others."""
        self.cut_one_way(one, other)
        self.cut_one_way(other, one)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
