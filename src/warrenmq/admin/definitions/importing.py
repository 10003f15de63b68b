"""Imports definitions into a running node, or only tells what an import would change.

Everything is checked before anything is changed. Users, vhosts, permissions and parameters are then
changed together, all or none; exchanges, queues and bindings follow, vhost by vhost, in slices.
An import that failed half-way can be repeated: it changes only what differs. An import can be
cancelled until its first change is handed to the disk.
"""

import logging
from collections.abc import Callable, Iterator, Sized

from warrenmq.admin.clock import Clock, GuardedClock
from warrenmq.admin.definitions.administration import Administration, Refusal
from warrenmq.admin.definitions.declaring import Declaring
from warrenmq.admin.definitions.differences import NodeDifference
from warrenmq.admin.definitions.document import DefinitionsError, Document, parse_steps
from warrenmq.admin.definitions.new_topology import TopologyPlanning
from warrenmq.admin.definitions.proposing import Proposing
from warrenmq.admin.protocol import control
from warrenmq.broker.broker import Broker
from warrenmq.broker.definitions.metadata import Change
from warrenmq.vocabulary.error_codes import INTERNAL, INVALID, NO_SUCH_VHOST, STORAGE_FAILED
from warrenmq.vocabulary.names import name_text

_log = logging.getLogger("warren.admin")

# Called when an import is over.
OnImported = Callable[[control.Imported | Refusal], None]


class DefinitionsImport:
    """One import into `broker`; `vhost` is for an export of one vhost, None for one of a node."""

    def __init__(
        self,
        broker: Broker,
        administration: Administration,
        clock: Clock,
        vhost: str | None,
        done: OnImported = lambda outcome: None,
    ) -> None:
        self._broker = broker
        self._administration = administration
        self._clock = GuardedClock(clock, self._on_fault)
        self._vhost = vhost
        self._done = done
        self._document = Document()
        self._node_lines: list[str] = []
        self._topology: TopologyPlanning | None = None
        self._step = control.IMPORT_READING
        # Objects done in this step, and how many it has.
        self._done_count = 0
        self._count = 0
        self._outcome: control.Imported | Refusal | None = None

    def start(self, data: bytes, is_dry_run: bool) -> None:
        """Import `data`; `done` is called once, now or later, unless the import is cancelled."""
        self._advance(self._plan(data), self._finish if is_dry_run else self._carry_out)

    def cancel(self) -> None:
        """End the import, unless it is being stored or over. Nothing is changed then."""
        if self._outcome is None and self._step in (
            control.IMPORT_READING,
            control.IMPORT_COMPARING,
        ):
            self._step = control.IMPORT_CANCELLED

    def is_running(self) -> bool:
        """Whether the import is neither over nor cancelled."""
        return self._outcome is None and self._step != control.IMPORT_CANCELLED

    def status(self) -> control.ImportStatus:
        """How far the import is. Raises the Refusal with which it ended."""
        if isinstance(self._outcome, Refusal):
            raise self._outcome
        return control.ImportStatus(self._step, self._done_count, self._count, self._outcome)

    def _advance(self, steps: Iterator[None], then: Callable[[], None]) -> None:
        """Take one step a turn, and call `then` after the last."""
        if self._step == control.IMPORT_CANCELLED:
            return
        try:
            next(steps)
        except StopIteration:
            then()
        except DefinitionsError as error:
            self._end(Refusal(INVALID, str(error)))
        except Refusal as refusal:
            self._end(refusal)
        else:
            self._clock.call_soon(lambda: self._advance(steps, then))

    def _plan(self, data: bytes) -> Iterator[None]:
        if self._vhost is not None and self._vhost.encode() not in self._broker.vhosts:
            raise Refusal(NO_SUCH_VHOST, f'Virtual host "{self._vhost}" does not exist')
        for done, count in parse_steps(data, self._document):
            self._done_count, self._count = done, count
            yield
        self._enter(control.IMPORT_COMPARING)
        difference = self._difference(lambda: 0)
        self._node_lines = difference.lines
        self._topology = TopologyPlanning(self._broker, self._document, difference.vhost_of)
        for done, count in self._topology.steps():
            self._done_count, self._count = done, count
            yield

    def _difference(self, next_vhost_id: Callable[[], int]) -> NodeDifference:
        return NodeDifference(self._broker, self._document, self._vhost, next_vhost_id)

    def _carry_out(self) -> None:
        def changes() -> list[Change]:
            if self._step == control.IMPORT_CANCELLED:
                return []
            # The broker may have changed since the plan was made.
            try:
                difference = self._difference(self._broker.next_vhost_id)
            except DefinitionsError as error:
                raise Refusal(INVALID, str(error)) from None
            self._node_lines = difference.lines
            self._enter(control.IMPORT_STORING, len(difference.changes))
            return difference.changes

        def changed(refusal: Refusal | None) -> None:
            if refusal is not None:
                self._end(refusal)
            elif self._step != control.IMPORT_CANCELLED:
                self._clock.call_soon(self._declare_all)

        self._administration.run(changes, changed)

    def _declare_all(self) -> None:
        assert self._topology is not None
        self._enter(control.IMPORT_DECLARING, sum(map(len, self._topology.vhosts.values())))
        self._declare()

    def _declare(self) -> None:
        """Declare what is left to declare, one vhost after another."""
        assert self._topology is not None
        if not self._topology.vhosts:
            self._finish()
            return
        name = next(iter(self._topology.vhosts))
        topology = self._topology.vhosts.pop(name)
        vhost = self._broker.vhosts.get(name)
        if vhost is None:
            self._fail(f"vhost '{name_text(name)}' is deleted")
            return
        shared = self._broker.shared
        if shared is None:
            Declaring(
                self._broker, vhost, topology, self._clock, self._count_declared, self._declared
            ).start()
        else:
            Proposing(
                self._broker,
                shared,
                vhost,
                topology,
                self._clock,
                self._count_declared,
                self._declared,
            ).start()

    def _count_declared(self, count: int) -> None:
        self._done_count += count

    def _declared(self, failure: str) -> None:
        if failure:
            self._fail(failure)
        else:
            self._declare()

    def _fail(self, text: str) -> None:
        self._end(Refusal(STORAGE_FAILED, f"{text}; repeat the import"))

    def _on_fault(self, error: Exception) -> None:
        """End the import: a bug costs this import, and its client gets an answer."""
        _log.error("internal error", exc_info=error)
        if self._outcome is None:
            self._end(Refusal(INTERNAL, "internal error; the node's log has the details"))

    def _finish(self) -> None:
        assert self._topology is not None
        left_out = self._document.left_out + self._sections_of_others() + self._topology.left_out
        self._end(control.Imported(self._node_lines + self._topology.lines, left_out))

    def _enter(self, step: str, count: int = 0) -> None:
        self._step, self._done_count, self._count = step, 0, count

    def _end(self, outcome: control.Imported | Refusal) -> None:
        self._outcome = outcome
        self._step = control.IMPORT_DONE
        self._done(outcome)

    def _sections_of_others(self) -> list[str]:
        """Counts of the rows that an import of one vhost skips: they belong to the node."""
        if self._vhost is None:
            return []
        document = self._document
        counts: dict[str, Sized] = {
            "users": document.users,
            "vhosts": document.vhosts,
            "permissions": document.permissions,
            "topic permissions": document.topic_permissions,
            "global parameters": document.global_parameters,
        }
        return [f"{len(rows)} {name}" for name, rows in counts.items() if len(rows) > 0]
