"""A topology: exchanges, queues and bindings that belong together, in the order of declaration."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Self, TypeAlias

from warrenmq.topology.bindings import Binding
from warrenmq.topology.exchanges import Exchange
from warrenmq.topology.queues import Queue

# The parts of a topology.
Declaration: TypeAlias = Exchange | Queue | Binding


class Topology:
    """A collection of declarations; iterates over exchanges, then queues, then bindings.

    An exact repetition counts once. Two different exchanges or queues of one name are a ValueError.
    A binding may name exchanges and queues outside the topology.
    """

    def __init__(self, *declarations: Declaration | Topology) -> None:
        self._exchanges: dict[str, Exchange] = {}
        self._queues: dict[str, Queue] = {}
        # A dict keeps the order.
        self._bindings: dict[Binding, None] = {}
        for each in declarations:
            if isinstance(each, Topology):
                for declaration in each:
                    self._add(declaration)
            else:
                self._add(each)

    @classmethod
    def from_yaml(cls, source: str | Path) -> Self:
        """The topology in `source`: a text, or the path of a file.

        Raises DocumentError, which names the place, and ImportError without PyYAML.
        """
        from warrenmq.topology.yaml_reading import read_yaml

        if isinstance(source, Path):
            return cls(*read_yaml(source.read_text("utf-8"), str(source)))
        return cls(*read_yaml(source, ""))

    def to_yaml(self) -> str:
        """The topology as YAML, without the attributes that have their default.

        An anonymous queue becomes an ordinary one with its name. ValueError for a queue without a
        name. ImportError without PyYAML.
        """
        from warrenmq.topology.yaml_writing import write_yaml

        return write_yaml(self.exchanges, self.queues, self.bindings)

    @property
    def exchanges(self) -> list[Exchange]:
        """The exchanges."""
        return list(self._exchanges.values())

    @property
    def queues(self) -> list[Queue]:
        """The queues."""
        return list(self._queues.values())

    @property
    def bindings(self) -> list[Binding]:
        """The bindings."""
        return list(self._bindings)

    def __iter__(self) -> Iterator[Declaration]:
        yield from self._exchanges.values()
        yield from self._queues.values()
        yield from self._bindings

    def __len__(self) -> int:
        return len(self._exchanges) + len(self._queues) + len(self._bindings)

    def __eq__(self, other: object) -> bool:
        """Whether the declarations are equal, in any order."""
        if not isinstance(other, Topology):
            return NotImplemented
        return (
            self._exchanges == other._exchanges
            and self._queues == other._queues
            and self._bindings == other._bindings
        )

    __hash__ = None  # type: ignore[assignment]  # like other collections that compare their contents

    def __repr__(self) -> str:
        return f"Topology({', '.join(map(repr, self))})"

    def _add(self, declaration: Declaration) -> None:
        if isinstance(declaration, Binding):
            self._bindings[declaration] = None
            return
        known: Exchange | Queue
        if isinstance(declaration, Exchange):
            known = self._exchanges.setdefault(declaration.name, declaration)
        elif isinstance(declaration, Queue):
            known = self._queues.setdefault(declaration.local_name, declaration)
        else:
            raise TypeError(f"{declaration!r} is no exchange, queue or binding")
        if known != declaration:
            raise ValueError(f"two different declarations of {declaration}")
