"""The steps of a declaration, without I/O: requests out, names of queues or refusals in."""

from collections.abc import Generator
from dataclasses import dataclass, replace

from warrenmq.topology.bindings import Binding
from warrenmq.topology.queues import Queue
from warrenmq.topology.requests import Refused, Request
from warrenmq.topology.topology import Declaration, Topology


@dataclass(frozen=True)
class Declared:
    """A topology that the broker has now."""

    declarations: tuple[Declaration, ...]
    # Names of queues by their `local_name`.
    _names: dict[str, str]

    def name_of(self, queue: Queue) -> str:
        """The name of a declared queue, also of one that was declared without a name."""
        return self._names[queue.local_name]


class DeclarationRefusedError(Exception):
    """The broker refused a declaration with the AMQP reply `code` and `text`.

    `done` was declared before it and stays; `left` was not tried.
    """

    def __init__(
        self,
        code: int,
        text: str,
        declaration: Declaration,
        done: tuple[Declaration, ...],
        left: tuple[Declaration, ...],
    ) -> None:
        super().__init__(code, text, declaration, done, left)
        self.code = code
        self.text = text
        self.declaration = declaration
        self.done = done
        self.left = left

    def __str__(self) -> str:
        done = f"; declared before it: {', '.join(map(str, self.done))}" if self.done else ""
        left = f"; not tried: {', '.join(map(str, self.left))}" if self.left else ""
        return f"the broker refused {self.declaration}: {self.code} {self.text}{done}{left}"


def declaring(topology: Topology) -> Generator[Request, str, Declared]:
    """The requests that declare `topology`.

    Each must be answered with the name of its queue, or "" if it has none. A refusal must be thrown
    in as Refused. Raises DeclarationRefusedError.
    """
    declarations = tuple(topology)
    names: dict[str, str] = {}
    for number, declaration in enumerate(declarations):
        try:
            name = yield Request(_with_actual_name(declaration, names))
        except Refused as refused:
            raise DeclarationRefusedError(
                refused.code,
                refused.text,
                declaration,
                declarations[:number],
                declarations[number + 1 :],
            ) from None
        if isinstance(declaration, Queue):
            names[declaration.local_name] = name
    return Declared(declarations, names)


def _with_actual_name(declaration: Declaration, names: dict[str, str]) -> Declaration:
    """`declaration`, or for a binding of a queue that the broker has named, one with that name."""
    if not isinstance(declaration, Binding) or declaration.destination_type != "queue":
        return declaration
    actual = names.get(declaration.destination, declaration.destination)
    return replace(declaration, destination=actual)
