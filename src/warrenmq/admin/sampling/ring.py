"""The last samples of a node: figures of the node, of its queues and of its reader groups.

The ring costs nothing until somebody asks for samples. Then it takes one at each whole multiple of
the interval, so that the nodes of a cluster take theirs at the same times, and stops when nobody
has asked for KEPT_MS. A sample is taken in slices, so that it holds up no client however many
queues there are. An object whose figures stay the same is shared by its samples: one more costs
eight bytes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Final, Protocol

from librt.strings import BytesWriter, read_i64_be

from warrenmq.admin.changes.node_walk import NodeWalk
from warrenmq.admin.changes.tick import OBJECTS_MAX as SLICE_OBJECTS
from warrenmq.admin.changes.walk import Walk
from warrenmq.admin.changes.walks import QueueWalk
from warrenmq.admin.clock import Clock
from warrenmq.admin.protocol.changes import NODE, QUEUE
from warrenmq.admin.protocol.samples import (
    GROUP,
    KEPT_MS,
    OBJECTS_MAX,
    SAMPLED_COUNTERS,
    SAMPLES_BYTES_MAX,
    ReadSamples,
    Sample,
    SampledObject,
    Samples,
)
from warrenmq.admin.sampling.group_figures import group_figures
from warrenmq.broker.broker import Broker
from warrenmq.vocabulary.names import name_text

_FIGURE_BYTES: Final = 8
# About what an object costs whose figures have changed (bytes).
_OBJECT_BYTES: Final = 260
_POINTER_BYTES: Final = 8


class SampledProcess(Protocol):
    """The process of the node, as far as a sample has figures of it."""

    @property
    def sample_interval_ms(self) -> int: ...
    def open_files(self) -> int: ...
    def open_sockets(self) -> int: ...


class _Object:
    """The figures of an object in a sample, and those in the sample before; None: not known."""

    __slots__ = ("before", "epoch", "figures", "group", "kind", "name", "vhost")

    def __init__(self, figures: bytes, before: bytes | None, epoch: int) -> None:
        self.figures = figures
        self.before = before
        self.epoch = epoch
        # "" until the object is named.
        self.kind = ""
        self.vhost = ""
        self.name = ""
        self.group = ""

    def shown(self) -> SampledObject:
        count = len(SAMPLED_COUNTERS[self.kind])
        figures = _unpacked(self.figures)
        increases = None
        if self.before is not None:
            before = _unpacked(self.before)
            increases = [figures[place] - before[place] for place in range(count)]
        return SampledObject(
            self.kind,
            self.vhost,
            self.name,
            self.group,
            figures[:count],
            figures[count:],
            increases,
        )


class _Taken:
    """A sample: its time and that of the one before (0: none), and its objects."""

    def __init__(self, at_ms: int, before_ms: int) -> None:
        self.at_ms = at_ms
        self.before_ms = before_ms
        self.objects: list[_Object] = []
        self.bytes = 0


class SampleRing:
    """The samples of the node of `broker`."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._samples: deque[_Taken] = deque()
        self._bytes = 0
        # The objects of the last sample, by kind and id.
        self._known: dict[tuple[object, ...], _Object] = {}
        # When somebody has asked for samples last (ms).
        self._asked_ms = 0
        self._is_running = False
        # Answers that wait for the sample that is being taken; None: none is.
        self._waiting: list[Callable[[], None]] | None = None
        self._packed = BytesWriter()

    def read(
        self,
        request: ReadSamples,
        nodes: list[str],
        process: SampledProcess,
        clock: Clock,
        reply: Callable[[Samples], None],
    ) -> None:
        """Answer `request` through `reply`, at once or when a sample is taken.

        The answer tells `nodes`.
        """
        self._asked_ms = clock.now_ms()
        if not self._is_running:
            self._is_running = True
            self._schedule(process, clock)
        if request.is_fresh or not self._samples:
            self._take(process, clock)

        def answer() -> None:
            reply(self._answer(request, nodes, process.sample_interval_ms, clock.now_ms()))

        if self._waiting is None:
            answer()
        else:
            self._waiting.append(answer)

    # -- taking ------------------------------------------------------------------------------------

    def _schedule(self, process: SampledProcess, clock: Clock) -> None:
        interval_ms = process.sample_interval_ms
        wait_ms = interval_ms - clock.now_ms() % interval_ms

        def tick() -> None:
            if clock.now_ms() - self._asked_ms > KEPT_MS:
                self._stop()
                return
            self._schedule(process, clock)
            self._take(process, clock)

        clock.call_later(wait_ms / 1000, tick)

    def _stop(self) -> None:
        self._is_running = False
        self._samples.clear()
        self._known = {}
        self._bytes = 0

    def _take(self, process: SampledProcess, clock: Clock) -> None:
        """Begin a sample, unless one is being taken, or there is one of this very time."""
        now_ms = clock.now_ms()
        last_ms = self._samples[-1].at_ms if self._samples else 0
        if self._waiting is not None or now_ms <= last_ms:
            return
        self._waiting = []
        taken = _Taken(now_ms, last_ms)
        slices = self._slices(taken, process)

        def step() -> None:
            if next(slices, None) is not None:
                clock.call_soon(step)
                return
            self._keep(taken)
            waiting, self._waiting = self._waiting or [], None
            for answer in waiting:
                answer()

        step()

    def _slices(self, taken: _Taken, process: SampledProcess) -> Iterator[bool]:
        """Add all objects to `taken`; yields after each slice."""
        broker = self._broker
        known: dict[tuple[object, ...], _Object] = {}
        walks: list[tuple[str, Walk]] = [
            (NODE, NodeWalk(broker, process.open_files(), process.open_sockets())),
            (QUEUE, QueueWalk(broker)),
        ]
        count = 0
        packed = self._packed
        for kind, walk in walks:
            while walk.next():
                packed.truncate(0)
                walk.write_figures(packed)
                key = (kind, int(walk.id))
                found = self._found(taken, key, packed.getvalue(), int(walk.epoch()))
                if found.kind == "":
                    found.kind, found.name = kind, walk.name()
                    found.vhost = name_text(walk.vhost_name())
                known[key] = found
                count += 1
                if count % SLICE_OBJECTS == 0:
                    yield True
        for each in list(broker.vhosts.values()):
            vhost = name_text(each.name)
            for group, queue, figures in group_figures(each, taken.at_ms):
                group_key = (GROUP, vhost, group, queue)
                found = self._found(taken, group_key, figures, 0)
                found.kind, found.vhost, found.name, found.group = GROUP, vhost, queue, group
                known[group_key] = found
        self._known = known

    def _found(self, taken: _Taken, key: tuple[object, ...], figures: bytes, epoch: int) -> _Object:
        """The object `key` with its `figures`, added to `taken`; a new one has no names yet."""
        last = self._known.get(key)
        before: bytes | None
        if last is None:
            # Counters begin at 0, but for those of a master that has moved here.
            is_new = taken.before_ms > 0 and epoch == 0
            before = bytes(len(figures)) if is_new else None
        else:
            before = last.figures if last.epoch == epoch else None
        taken.bytes += _POINTER_BYTES
        if last is None or before is None or last.before != before or last.figures != figures:
            named = last
            last = _Object(figures, before, epoch)
            if named is not None:
                last.kind, last.vhost = named.kind, named.vhost
                last.name, last.group = named.name, named.group
            taken.bytes += _OBJECT_BYTES
        taken.objects.append(last)
        return last

    def _keep(self, taken: _Taken) -> None:
        samples = self._samples
        samples.append(taken)
        self._bytes += taken.bytes
        while len(samples) > 1 and (
            self._bytes > SAMPLES_BYTES_MAX or samples[0].at_ms < taken.at_ms - KEPT_MS
        ):
            self._bytes -= samples.popleft().bytes

    # -- answering ---------------------------------------------------------------------------------

    def _answer(
        self, request: ReadSamples, nodes: list[str], interval_ms: int, now_ms: int
    ) -> Samples:
        found: list[Sample] = []
        left = OBJECTS_MAX
        next_after_ms, next_skip, has_more = request.after_ms, 0, False
        for taken in self._samples:
            if not request.after_ms < taken.at_ms <= request.upto_ms:
                continue
            if left == 0:
                has_more = True
                break
            # Objects are skipped of the very sample that the last answer ended in.
            skip = request.skip if taken.at_ms == request.after_ms + 1 else 0
            objects = taken.objects[skip : skip + left]
            found.append(Sample(taken.at_ms, taken.before_ms, [each.shown() for each in objects]))
            left -= len(objects)
            next_after_ms, next_skip = taken.at_ms, 0
            if skip + len(objects) < len(taken.objects):
                next_after_ms, next_skip, has_more = taken.at_ms - 1, skip + len(objects), True
                break
        samples = self._samples
        return Samples(
            node=self._broker.settings.node_name,
            nodes=nodes,
            now_ms=now_ms,
            interval_ms=interval_ms,
            first_ms=samples[0].at_ms if samples else 0,
            last_ms=samples[-1].at_ms if samples else 0,
            samples=found,
            has_more=has_more,
            next_after_ms=next_after_ms,
            next_skip=next_skip,
        )


def _unpacked(figures: bytes) -> list[int]:
    return [int(read_i64_be(figures, at)) for at in range(0, len(figures), _FIGURE_BYTES)]
