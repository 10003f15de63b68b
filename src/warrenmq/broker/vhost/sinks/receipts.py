"""Receipts: which messages of the cluster's sinks the queues of this node have got (decision 036).

A message of a sink may come several times: from two movers, or from one that repeats a slice. A
book of receipts (`receipt_book.py`) knows it by its position in the sink. The plain queues of the
node share a book for each sink. A queue that is mirrored, or was once, has its own, which its
copies have too: their master tells it with the messages (`queues/receipts.py`).

Message and receipt are one record of the journal, the MOVE: its origin is the id of the book and
the position. A book's row in the definitions has the floor, and the positions that no file of the
journal has to keep any more.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from warrenmq.broker.definitions.metadata import Change, DeleteReceipts, PutReceipts
from warrenmq.broker.vhost.arrival import arrive
from warrenmq.broker.vhost.queues import VhostQueues
from warrenmq.broker.vhost.remote.slice_carrier import Delivery
from warrenmq.broker.vhost.sinks.receipt_book import ReceiptBook
from warrenmq.broker.vhost.sinks.receipt_waits import (
    GatheredReceipts,
    TakenSlice,
    TakeWaiter,
    UnpinnedFiles,
)
from warrenmq.broker.vhost.sinks.staged_routes import inspect
from warrenmq.queues.confirm_source import ConfirmSource
from warrenmq.queues.hand_out_gate import CLOSED
from warrenmq.queues.message_taker import MessageTaker
from warrenmq.queues.queue import Queue
from warrenmq.queues.receipts import POSITIONS_MAX, ReceiptHost, SinkReceipts
from warrenmq.store.model.message import JournalFile, Message, MovedMessage, QueueLedger
from warrenmq.store.model.runs import Runs, add_run, contains, merge_runs, subtract

# Durable MOVEs that pin files of the journal: with more of them a book gets a new row.
_PINNED_MAX: Final = 8192
# The plain queues of the node, as the queue of a book.
PLAIN: Final = 0


class Receipts(ReceiptHost):
    """The books of receipts of one vhost."""

    def __init__(self, vhost: VhostQueues) -> None:
        self.vhost: VhostQueues = vhost
        # By the key of the sink and the id of the queue.
        self._books: dict[bytes, dict[int, ReceiptBook]] = {}
        self._by_id: dict[int, ReceiptBook] = {}
        # Positions below these are in all of their queues, by the key of the sink.
        self._floors: dict[bytes, int] = {}
        self._gathering: GatheredReceipts | None = None
        vhost.host.receipts = self
        vhost.deletion_watchers.append(self._on_deleted)
        vhost.discard_watchers.append(self._drop_queue)

    # -- messages that come ------------------------------------------------------------------------

    def floor_of(self, sink: bytes) -> i64:
        """The position below which all messages of a sink are in their queues, as far as known."""
        return self._floors.get(sink, 0)

    def raise_floor(self, sink: bytes, floor: i64) -> None:
        """Note that all positions below `floor` are in all of their queues."""
        if floor <= self.floor_of(sink):
            return
        self._floors[sink] = floor
        for book in self._books.get(sink, {}).values():
            book.raise_floor(floor)

    def publish(self, sink: bytes, deliveries: list[Delivery], now_ms: i64) -> str:
        """Publish messages to their queues, which have their masters here, unless they have them.

        Returns why some were refused, "" if none was.
        """
        failure = ""
        for delivery in deliveries:
            plain: list[MessageTaker] = []
            for queue in delivery.queues:
                assert isinstance(queue, Queue)
                if not _has_own_book(queue):
                    plain.append(queue)
                elif queue.confirm_source is not None and queue.confirm_source.refuses():
                    failure = "a mirrored queue has too few copies in sync"
                else:
                    book = self._book(sink, queue.id)
                    failure = self._publish(book, delivery, [queue], now_ms) or failure
            if len(plain) > 0:
                book = self._book(sink, PLAIN)
                failure = self._publish(book, delivery, plain, now_ms) or failure
        return failure

    def take(
        self, sink: bytes, deliveries: list[Delivery], waiter: TakeWaiter, failure: str, now_ms: i64
    ) -> None:
        """Publish messages; `waiter` is called when all that came so far is here for good.

        `failure`: why some messages of the slice are not among them, "" for none.
        """
        failure = self.publish(sink, deliveries, now_ms) or failure
        sources: dict[ConfirmSource, None] = {}
        is_handed_out = False
        for delivery in deliveries:
            for queue in delivery.queues:
                assert isinstance(queue, Queue)
                if queue.confirm_source is not None and not queue.confirm_source.refuses():
                    sources[queue.confirm_source] = None
                    # A master that hands over has stopped handing out. What came before is with
                    # the next master, and what comes now nobody gets.
                    is_handed_out = is_handed_out or queue.gate is not CLOSED
        TakenSlice(self.vhost.journal, list(sources), is_handed_out, waiter, failure).watch()
        self.vhost.node.wake()

    def _publish(
        self, book: ReceiptBook, delivery: Delivery, queues: list[MessageTaker], now_ms: i64
    ) -> str:
        position = delivery.position
        if book.has(position):
            return ""
        if position >= book.floor + POSITIONS_MAX:
            return "a message is too far ahead of the sink's other messages"
        moved = _as_moved(delivery.message, book, position)
        properties = inspect(moved)
        # A committed message must not vanish: no queue may refuse it.
        arrive(
            queues,
            moved,
            properties.expiration_ms,
            properties.priority,
            now_ms,
            delivery.is_known,
            may_refuse=False,
        )
        self.vhost.journal.moves.add(moved)
        self._expect(book, position, moved)
        for queue in queues:
            _tell(queue)
        return ""

    def _book(self, sink: bytes, queue_id: i64) -> ReceiptBook:
        """The book of a queue; a new one has the positions below the floor only."""
        book = self._books.get(sink, {}).get(queue_id)
        return book if book is not None else self._open(sink, queue_id, self.floor_of(sink), [])

    def _open(self, sink: bytes, queue_id: i64, floor: i64, runs: Runs) -> ReceiptBook:
        book = ReceiptBook(self.vhost.node.next_queue_id(), sink, queue_id, floor, runs)
        self._add(book)
        self._store(book)
        return book

    def _add(self, book: ReceiptBook) -> None:
        self._books.setdefault(book.sink, {})[book.queue_id] = book
        self._by_id[book.id] = book

    # -- durable messages --------------------------------------------------------------------------

    def _expect(self, book: ReceiptBook, position: i64, moved: MovedMessage | None) -> None:
        """Wait for the batch that gathers: it has the message at `position`."""
        book.pending[position] = moved
        gathered = self._gathering
        if gathered is None or gathered.is_sealed():
            gathered = GatheredReceipts(self.vhost.journal, self._on_durable)
            self._gathering = gathered
            gathered.watch()
        gathered.expected.append((book, position))

    def _on_durable(self, expected: list[tuple[ReceiptBook, i64]]) -> None:
        """Note that messages are durable."""
        moves = self.vhost.journal.moves
        lone: dict[ReceiptBook, None] = {}
        for book, position in expected:
            if book.pending.get(position) is None:
                lone[book] = None
            file = book.on_durable(position)
            if file is not None:
                moves.settled(file)
        for book in lone:
            if not book.is_dropped:
                # What waits still has a row of its own when it is durable.
                book.shared = _among(book.shared, book.pending)
                self._store(book)

    def sweep(self) -> None:
        """Let go of files of the journal that only receipts need, about every second."""
        files = self.vhost.journal.files
        for book in self._by_id.values():
            oldest = book.oldest_file()
            if oldest is not None and (
                oldest is not files[len(files) - 1] or book.pinned_count > _PINNED_MAX
            ):
                self._store(book)

    def _store(self, book: ReceiptBook) -> None:
        """Store the row of a book; no MOVE of it is durable before."""
        stored = UnpinnedFiles(self.vhost.journal, book.list_moved())
        row = PutReceipts(
            self.vhost.name,
            book.id,
            book.sink,
            book.queue_id,
            book.floor,
            _as_ends(book.listed),
            _as_ends(book.shared),
        )
        # Patient: files may go when the row is stored, not when the first try has failed.
        change_set = self.vhost.store_changes([row], True, is_patient=True)
        change_set.is_needed_by_records = True
        change_set.callbacks.append(stored.on_stored)

    # -- ends --------------------------------------------------------------------------------------

    def drop_sink(self, sink: bytes) -> None:
        """Drop the books of a sink that is deleted."""
        self._floors.pop(sink, None)
        for book in list(self._books.get(sink, {}).values()):
            self._drop(book)
            queue = self.vhost.queues_by_id.get(book.queue_id)
            if queue is not None:
                _tell(queue)

    def keep_only(self, sinks: set[bytes]) -> None:
        """Drop the books of all sinks but `sinks`, which are all that there are."""
        for sink in [sink for sink in self._books if sink not in sinks]:
            self.drop_sink(sink)

    def _drop(self, book: ReceiptBook) -> None:
        book.is_dropped = True
        books = self._books[book.sink]
        del books[book.queue_id]
        if len(books) == 0:
            del self._books[book.sink]
        del self._by_id[book.id]
        stored = UnpinnedFiles(self.vhost.journal, book.list_moved())
        change: Change = DeleteReceipts(self.vhost.name, book.id)
        change_set = self.vhost.store_changes([change], True, is_patient=True)
        change_set.callbacks.append(stored.on_stored)

    def _drop_queue(self, queue: Queue) -> None:
        for book in self._of_queue(queue.id):
            self._drop(book)

    def _of_queue(self, queue_id: i64) -> list[ReceiptBook]:
        found: list[ReceiptBook] = []
        for books in self._books.values():
            book = books.get(queue_id)
            if book is not None:
                found.append(book)
        return found

    def _on_deleted(self, queue: Queue, _message_count: int, _now_ms: int) -> None:
        if queue.is_deleted:
            self._drop_queue(queue)
        elif queue.epoch == 0:
            self._split(queue)

    def _split(self, queue: Queue) -> None:
        """Give a plain queue, which becomes mirrored, books of its own."""
        for sink in list(self._books):
            shared = self._books[sink].get(PLAIN)
            if shared is None or queue.id in self._books[sink]:
                continue
            pending = list(shared.pending)
            runs = shared.durable_runs()
            book = ReceiptBook(self.vhost.node.next_queue_id(), sink, queue.id, shared.floor, runs)
            book.shared = merge_runs([(position, position) for position in pending])
            self._add(book)
            self._store(book)
            for position in pending:
                self._expect(book, position, None)

    # -- copies of mirrored queues -----------------------------------------------------------------

    def sink_of(self, message: Message) -> bytes:
        if not isinstance(message, MovedMessage):
            return b""
        book = self._by_id.get(message.origin_id)
        return b"" if book is None else book.sink

    def receipts_of(self, ledger: QueueLedger) -> list[SinkReceipts]:
        return [
            SinkReceipts(book.sink, book.floor, book.runs())
            for book in self._of_queue(self._queue_id(ledger))
        ]

    def follow(self, ledger: QueueLedger, told: list[SinkReceipts], is_lacking: bool) -> bool:
        queue = self.vhost.queues_by_id.get(self._queue_id(ledger))
        if queue is None or not queue.is_hidden:
            return False
        is_new = False
        sinks = {receipts.sink for receipts in told}
        for book in self._of_queue(queue.id):
            if book.sink not in sinks:
                self._drop(book)
                is_new = True
        for receipts in told:
            is_new = self._follow(queue, receipts, is_lacking) or is_new
        return is_new and queue.durable

    def _follow(self, queue: Queue, told: SinkReceipts, is_lacking: bool) -> bool:
        """Let a copy have what its master tells of one sink; True: something has changed."""
        self.raise_floor(told.sink, told.floor)
        floor = self.floor_of(told.sink)
        book = self._books.get(told.sink, {}).get(queue.id)
        is_new = False
        if book is None:
            if is_lacking:
                return False
            book = self._open(told.sink, queue.id, floor, [])
            is_new = True
        elif len(_subtract(book.runs(), told.runs, floor)) > 0:
            book = self._replace(book, told.runs)
            is_new = True
        if is_lacking:
            return is_new
        for first, last in _subtract(told.runs, book.runs(), floor):
            for position in range(first, last + 1):
                self._note(book, position)
            is_new = True
        return is_new

    def _note(self, book: ReceiptBook, position: i64) -> None:
        """Note that a copy has a message, or has had it, without the message.

        The MOVE is in the batch that gathers, as what the copy has got just now. A row would be
        stored before the messages, or a batch later.
        """
        moved = MovedMessage(b"", b"", b"", False, 0, book.id, position)
        self.vhost.journal.moves.add(moved)
        self._expect(book, position, moved)

    def _replace(self, book: ReceiptBook, told: Runs) -> ReceiptBook:
        """Put a new book in the place of one that has more than the master tells.

        The copy has published or got what the master never did. The MOVEs of these messages, which
        the copy settles, must not count any more.
        """
        durable = book.durable_runs()
        floor = book.floor
        self._drop(book)
        more = _subtract(durable, told, floor)
        new = self._open(book.sink, book.queue_id, floor, _subtract(durable, more, floor))
        for position in book.pending:
            if contains(told, position):
                self._note(new, position)
        return new

    def received(
        self, ledger: QueueLedger, sink: bytes, position: i64, message: Message
    ) -> MovedMessage | None:
        book = self._book(sink, self._queue_id(ledger))
        if book.has(position):
            return None
        moved = _as_moved(message, book, position)
        self.vhost.journal.moves.add(moved)
        self._expect(book, position, moved)
        return moved

    def _queue_id(self, ledger: QueueLedger) -> i64:
        queue = self.vhost.host.ledgers[ledger.queue_id].queue
        assert isinstance(queue, Queue)
        return queue.id

    # -- start -------------------------------------------------------------------------------------

    def restore(self, rows: list[PutReceipts]) -> None:
        """Restore the books, once the queues are there; those of queues that are gone go too."""
        gone: list[Change] = []
        for row in rows:
            if row.vhost != self.vhost.name:
                continue
            if row.queue_id != PLAIN and row.queue_id not in self.vhost.queues_by_id:
                gone.append(DeleteReceipts(row.vhost, row.id))
                continue
            book = ReceiptBook(row.id, row.sink, row.queue_id, row.floor, _as_runs(row.runs))
            book.shared = _as_runs(row.shared)
            self._add(book)
            self._floors[row.sink] = max(self._floors.get(row.sink, 0), row.floor)
        for book in self._by_id.values():
            book.raise_floor(self.floor_of(book.sink))
        if len(gone) > 0:
            self.vhost.store_changes(gone, True)

    def restore_moved(self, moved: dict[int, dict[int, JournalFile]]) -> None:
        """Take over from the journal which messages are here, by book and position."""
        for book in self._by_id.values():
            for position, file in moved.get(book.id, {}).items():
                if not book.has(position):
                    file.pins += 1
                    book.moved[position] = file
        for book in list(self._by_id.values()):
            self._restore_shared(book)

    def restore_splits(self) -> None:
        """Give queues that became mirrored books of their own, once their epochs are known.

        The node may have died before these were stored. Then nothing that came later is here.
        """
        for queue in self.vhost.queues_by_id.values():
            if queue.is_hidden and queue.epoch == 0:
                self._split(queue)

    def _restore_shared(self, book: ReceiptBook) -> None:
        """Take over what has come for a queue that was plain then, and is durable."""
        plain = self._books[book.sink].get(PLAIN)
        awaited, book.shared = book.shared, []
        if plain is None or len(awaited) == 0:
            return
        for first, last in awaited:
            for position in range(max(first, book.floor), last + 1):
                if plain.has(position):
                    add_run(book.listed, position, position)
        self._store(book)

    def has_book(self, book_id: i64) -> bool:
        """Whether MOVEs with the origin `book_id` are receipts."""
        return book_id in self._by_id


def _as_ends(runs: Runs) -> list[int]:
    """Runs as a row has them: the first and the last position of each."""
    ends: list[int] = []
    for first, last in runs:
        ends.append(first)
        ends.append(last)
    return ends


def _as_runs(ends: list[int]) -> Runs:
    """The runs in a row."""
    return [(ends[place], ends[place + 1]) for place in range(0, len(ends), 2)]


def _among(runs: Runs, pending: dict[int, MovedMessage | None]) -> Runs:
    """The positions of `runs` that are pending."""
    return merge_runs([(each, each) for each in pending if contains(runs, each)])


def _as_moved(message: Message, book: ReceiptBook, position: i64) -> MovedMessage:
    """The message of a sink as its receipt in `book`."""
    return MovedMessage(
        message.address,
        message.properties,
        message.body,
        message.persistent,
        message.timestamp_ms,
        book.id,
        position,
    )


def _has_own_book(queue: Queue) -> bool:
    """Whether a queue is mirrored, or was once."""
    return queue.confirm_source is not None or queue.epoch != 0


def _tell(queue: MessageTaker) -> None:
    """Let the copies of a queue know its books, if this node is the master."""
    assert isinstance(queue, Queue)
    feed = queue.backing.feed
    if feed is not None:
        feed.receipts_changed()


def _subtract(runs: Runs, others: Runs, floor: i64) -> Runs:
    """The positions of `runs` from `floor` on that `others` have not."""
    left: Runs = []
    for first, last in runs:
        if last >= floor:
            left.extend(subtract(max(first, floor), last, others))
    return left
