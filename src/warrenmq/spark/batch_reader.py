"""Batch reading: reads the ready messages of queues and leaves them in their queues.

The ranges of seq ids are fixed when the DataFrame is planned (once per `load()`). Messages that are
consumed after that are missing from the rows, so two actions on one DataFrame may see different
rows. Messages that are unacked at a consumer or reserved by a reader group are not ready, so a
batch read does not see them.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from warrenmq.admin.client.client import AdminRefusedError
from warrenmq.admin.protocol import requests
from warrenmq.admin.protocol.figures import ListQueues, QueueList
from warrenmq.admin.protocol.homes import LocateQueues
from warrenmq.spark.broker_link import BrokerLink, link_to
from warrenmq.spark.fetching import FETCH_BYTES, FETCH_MESSAGES, TASKS_WANTED, RangeReader, pack
from warrenmq.spark.homes import Homes, QueueLink, homes_of
from warrenmq.spark.large_bodies import DEAD_LETTER, READ_CHOICES, usable
from warrenmq.spark.nodes import NOWHERE, Place
from warrenmq.spark.options import EVERYTHING, LATEST, Bound, OptionError, SourceOptions
from warrenmq.spark.retry import SourceError
from warrenmq.vocabulary.error_codes import NOT_FOUND, PRECONDITION
from warrenmq.vocabulary.names import name_text
from warrenmq.vocabulary.patterns.name_pattern import NamePattern

if TYPE_CHECKING:
    from pyarrow import RecordBatch

MESSAGES_PER_PARTITION: Final = 32768
_PURPOSE: Final = "Spark batch read"


@dataclass(frozen=True)
class PeekRange:
    """Seq ids [start, end) of one incarnation of a queue."""

    queue: bytes
    incarnation: int
    start: int
    end: int
    # The queue's home in a cluster, and where all nodes are; "" and none for a broker that runs
    # alone.
    home: str = ""
    places: Mapping[str, Place] = field(default_factory=dict, compare=False)

    def peek(self, start: int, with_bodies: bool) -> requests.Request:
        """The request for the first messages of the range from `start` on."""
        return requests.Peek(
            queue=self.queue,
            incarnation=self.incarnation,
            start=start,
            end=self.end,
            max_messages=FETCH_MESSAGES,
            max_bytes=FETCH_BYTES,
            with_bodies=with_bodies,
        )


@dataclass
class PeekPartition(InputPartition):
    """The ranges that one task reads."""

    ranges: tuple[PeekRange, ...]


class WarrenBatchReader(DataSourceReader):
    """The reader of one `load()`."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        if options.stream_options:
            raise OptionError(
                f"option '{options.stream_options[0]}' is for streams: batch reads know no such thing"
            )
        if options.start.name == LATEST:
            raise OptionError(
                "option 'startingOffsets': a batch read that begins at the latest message is empty"
            )
        if options.large_bodies == DEAD_LETTER:
            raise OptionError(
                "option 'largeBodies': deadLetter is for streams, as batch reads leave messages in their queues"
            )
        self._options = options
        self._schema = schema

    def partitions(self) -> list[InputPartition]:
        """The ranges of messages that are ready at the call, grouped into one partition a task."""
        ranges = [self._range(queue, home) for queue, home in self._queues()]
        total = sum(part.end - part.start for part in ranges)
        count_min = self._options.min_partitions
        count = max(count_min, min(TASKS_WANTED, -(-total // MESSAGES_PER_PARTITION)))
        pieces = _cut(ranges, max(1, -(-total // count)))
        if len(pieces) < count_min:
            pieces = _cut(ranges, max(1, total // count))
        weights = [part.end - part.start for part in pieces]
        return [PeekPartition(group) for group in pack(pieces, weights, count, count_min)]

    def read(self, partition: InputPartition) -> Iterator["RecordBatch"]:
        """Record batches of the messages that are still ready in a partition; runs in a worker."""
        # Spark passes a partition of its own class when there is nothing to read.
        if not isinstance(partition, PeekPartition):
            return
        readers: dict[bytes, RangeReader] = {}
        for part in partition.ranges:
            if part.queue not in readers:
                link = self._queue_link(part.queue, part.home, part.places)
                readers[part.queue] = RangeReader(self._options, self._schema, link)
            batches = readers[part.queue].read(name_text(part.queue), part, part.peek, _refused)
            yield from usable(batches, self._options.large_bodies, READ_CHOICES)

    def _queues(self) -> list[tuple[bytes, str]]:
        """The queues to read with their homes: those in the options, or all that match.

        A queue that does not exist is looked for at the node of the options, which says so.
        """
        options = self._options
        names = [name.encode() for name in options.queues]
        homes = self._homes()
        try:
            located = homes.locate(LocateQueues(names, options.pattern), self._link(""))
        except AdminRefusedError as error:
            raise _refused(error) from None
        if options.pattern:
            found = [
                (name, home)
                for home in (homes.places if located.nodes else ("",))
                for name in self._matching(home)
            ]
            return sorted(found)
        home_of = {place.node: place.id for place in located.nodes}
        known = {each.queue: home_of.get(each.node, "") for each in located.homes}
        return [(name, known.get(name, "")) for name in names]

    def _matching(self, home: str) -> list[bytes]:
        """The queues at `home` that match the pattern."""
        pattern = NamePattern(self._options.pattern)
        names: list[bytes] = []
        after = 0
        while True:
            try:
                found = self._link(home).request(ListQueues(after), QueueList)
            except AdminRefusedError as error:
                raise _refused(error) from None
            names += [
                queue.name_raw or queue.name.encode()
                for queue in found.queues
                if pattern.matches(queue.name)
            ]
            if found.is_last:
                return names
            after = found.queues[-1].id

    def _range(self, name: bytes, home: str) -> PeekRange:
        """The range to read of one queue: the range of the options, cut to the queue's messages."""
        options = self._options
        try:
            link = self._queue_link(name, home)
            queue = link.request(requests.DescribeQueue(name), requests.QueueDescription)
            starts = _seq(link, options.start, name, queue, 0)
            ends = _seq(link, options.end, name, queue, EVERYTHING)
        except AdminRefusedError as error:
            # A queue that matches the pattern may be deleted since, or exclusive to a connection.
            if error.code in (NOT_FOUND, PRECONDITION) and options.pattern:
                return PeekRange(name, 0, 0, 0)
            raise _refused(error) from None
        start = max(queue.first_ready, options.seq_from, starts)
        end = max(start, min(queue.tail, options.seq_to, ends))
        return PeekRange(name, queue.incarnation, start, end, home, self._homes().places)

    def _link(self, home: str) -> BrokerLink:
        """This process's connection to `home`; to the node of the options for ""."""
        if not home:
            return link_to(self._options.uri, _PURPOSE, self._options.retry_timeout_ms)
        return self._homes().link(home)

    def _queue_link(
        self, queue: bytes, home: str, places: Mapping[str, Place] = NOWHERE
    ) -> BrokerLink | QueueLink:
        """This process's connection to the home of `queue`; the driver saw nodes at `places`."""
        if not home:
            return self._link(home)
        homes = self._homes()
        homes.hint(places)
        return homes.queue_link(queue, home)

    def _homes(self) -> Homes:
        return homes_of(self._options.uri, _PURPOSE, self._options.retry_timeout_ms)


def _seq(
    link: BrokerLink | QueueLink,
    bound: Bound,
    name: bytes,
    queue: requests.QueueDescription,
    default: int,
) -> int:
    if bound.timestamp_ms is None:
        return bound.seqs.get(name_text(name), default)
    request = requests.SeekTime(name, queue.incarnation, bound.timestamp_ms)
    return link.request(request, requests.TimeSought).seq


def _cut(ranges: list[PeekRange], width: int) -> list[PeekRange]:
    """The ranges cut into pieces of at most `width` positions."""
    return [
        replace(part, start=start, end=min(start + width, part.end))
        for part in ranges
        for start in range(part.start, part.end, width)
    ]


def _refused(error: AdminRefusedError) -> SourceError:
    return SourceError(error.text)
