"""The last entries of the log in memory, for the HTTP API and its pages."""

import logging
from collections import deque
from collections.abc import Iterator
from itertools import islice
from typing import Final, NamedTuple

# Bounds of all entries together: their number, and their characters.
ENTRIES_MAX: Final = 4096
CHARACTERS_MAX: Final = 1 << 20
# A longer text is cut, and so is a longer stack.
TEXT_MAX: Final = 8192


class Entry(NamedTuple):
    """An event of the log; `number` is its time in microseconds since 1970, made unique."""

    number: int
    created_s: float
    level: int
    domain: str
    text: str
    # The stack of an exception, "" without one.
    stack: str

    @property
    def size(self) -> int:
        """Its characters."""
        return len(self.text) + len(self.stack)

    def has(self, part: str) -> bool:
        """Whether `part`, in lower case, is somewhere in the entry, in upper or lower case."""
        return not part or any(
            part in text.lower() for text in (self.text, self.domain, self.stack)
        )


class Found(NamedTuple):
    """Entries, the newest first, and whether older ones were wanted as well.

    `first` and `last` are the numbers of the oldest and the newest entry that there is, 0 if there
    is none.
    """

    entries: list[Entry]
    has_more: bool
    first: int
    last: int


class LogRing(logging.Handler):
    """Keeps the last entries; a new one that has no room replaces the oldest."""

    def __init__(self) -> None:
        super().__init__()
        self._entries: deque[Entry] = deque()
        self._characters = 0
        self._last = 0
        self._stacks = logging.Formatter()

    def emit(self, record: logging.LogRecord) -> None:
        """Keep `record`; called under the handler's lock, by any thread."""
        try:
            text = _shown(record.getMessage()[:TEXT_MAX])
            stack = ""
            if record.exc_info:
                # The end of a stack has the reason.
                stack = _shown(self._stacks.formatException(record.exc_info)[-TEXT_MAX:])
        except Exception:  # As in all handlers: arguments that do not fit cost the line only.
            self.handleError(record)
            return
        self._last = max(self._last + 1, int(record.created * 1_000_000))
        entry = Entry(self._last, record.created, record.levelno, record.name, text, stack)
        self._entries.append(entry)
        self._characters += entry.size
        while len(self._entries) > ENTRIES_MAX or self._characters > CHARACTERS_MAX:
            self._characters -= self._entries.popleft().size

    def find(self, after: int, before: int, level: int, part: str, limit: int) -> Found:
        """The newest `limit` entries with a number between `after` and `before`, both left out.

        They are of `level` (a number of `logging`) or above, and have `part` in them, in upper or
        lower case.
        """
        # Another thread may add entries meanwhile.
        self.acquire()
        try:
            kept = list(self._entries)
        finally:
            self.release()
        wanted = _wanted(reversed(kept), after, before, level, part.lower())
        found = list(islice(wanted, limit))
        has_more = next(wanted, None) is not None
        return Found(found, has_more, kept[0].number if kept else 0, self._last)


def _wanted(
    newest_first: Iterator[Entry], after: int, before: int, level: int, part: str
) -> Iterator[Entry]:
    for entry in newest_first:
        if entry.number <= after:
            return
        if entry.number < before and entry.level >= level and entry.has(part):
            yield entry


def _shown(text: str) -> str:
    r"""`text` with characters that nobody sees as `\x1b` and the like; line breaks stay.

    Names of clients may have such characters, which turn the direction of a line or hide a part.
    """
    if text.isprintable():
        return text
    return "".join(
        [each if each.isprintable() or each == "\n" else _escaped(each) for each in text]
    )


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode()
