"""Where a queue with copies gets what its publishes wait for."""

from __future__ import annotations

from collections.abc import Callable

from mypy_extensions import mypyc_attr

from warrenmq.store.journal.confirm_run import ConfirmParty


@mypyc_attr(allow_interpreted_subclasses=True)
class ConfirmSource:
    """Knows when all copies of a queue that count have what the queue took, or let go."""

    def __init__(self) -> None:
        # The cluster is deciding whether the queue, which nobody uses, is deleted. Until it has,
        # nobody may use the queue: a use would count for nothing if it is.
        self.is_leaving: bool = False
        # Calls that came meanwhile. Each is called once, as wait(failure, now_ms): with "" the
        # decision is in, so the caller looks again; else there was none in time.
        self.leaving_waits: list[Callable[[str, int], None]] = []

    def party(self) -> ConfirmParty:
        """The party that is finished when they have all that came before this call.

        That includes the journal of this node: the caller waits for nothing else.
        """
        raise RuntimeError("abstract")

    def refuses(self) -> bool:
        """Whether no party of now will be confirmed: this is no master, or too few copies count."""
        raise RuntimeError("abstract")

    def has_room(self) -> bool:
        """Whether few enough bytes are on their way to other copies that publishers may go on."""
        raise RuntimeError("abstract")

    def is_drained(self) -> bool:
        """Whether publishers that wait for room may go on."""
        raise RuntimeError("abstract")
