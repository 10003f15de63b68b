"""Feeds a reader damaged inputs, and judges what comes out of it.

A reader passes an input when it returns or raises one of its documented errors, when nothing was
logged with a traceback (the engine logs its own bugs so and carries on), and when it has not
allocated more than its bound, which grows with the input. The memory of each 16th input is
measured: that makes a reader several times slower.

Input `number` of `seed` depends on nothing else, so that it can be repeated alone.
"""

import logging
import random
import tracemalloc
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.fuzz.mutator import mutate

CORPUS: Final = Path(__file__).parent / "corpus"
# Each so many inputs, one is measured.
_MEASURED: Final = 16

Mutate = Callable[[random.Random, bytes, bytes], bytes]


@dataclass(frozen=True)
class Reader:
    """One reader of bytes from outside.

    `read` raises only `errors` for bytes that make no sense to it. It may allocate `fixed_bytes`,
    and `bytes_per_byte` for each byte of the input.
    """

    read: Callable[[bytes], object]
    errors: tuple[type[Exception], ...] = ()
    mutate: Mutate = mutate
    fixed_bytes: int = 1 << 20
    bytes_per_byte: int = 256


@dataclass
class Finding:
    """An input that a reader did not pass."""

    number: int
    data: bytes
    reason: str
    error: BaseException | None = None

    @property
    def kind(self) -> str:
        """The same for findings that have the same cause, most likely."""
        if self.error is None or self.error.__traceback__ is None:
            return self.reason.partition(":")[0]
        traceback = self.error.__traceback__
        while traceback.tb_next is not None:
            traceback = traceback.tb_next
        code = traceback.tb_frame.f_code
        return f"{type(self.error).__name__} at {code.co_filename}:{traceback.tb_lineno}"


@dataclass
class Outcome:
    """What a campaign has found."""

    inputs: int = 0
    accepted: int = 0
    # Inputs of which memory was measured, and the most that any of them took of its bound.
    measured: int = 0
    share_of_bound: float = 0.0
    findings: list[Finding] = field(default_factory=list)


class _Crashes(logging.Handler):
    """Keeps exceptions that are logged with a traceback."""

    def __init__(self) -> None:
        super().__init__()
        self.errors: list[BaseException] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and record.exc_info[1] is not None:
            self.errors.append(record.exc_info[1])


def corpus_of(name: str) -> list[bytes]:
    """The inputs of a reader that are kept, in the order of their names."""
    return [path.read_bytes() for path in sorted((CORPUS / name).iterdir())]


def made_input(reader: Reader, corpus: Sequence[bytes], seed: int, number: int) -> bytes:
    """Input `number` of `seed`: the corpus as it is comes first, then damaged inputs."""
    if number < len(corpus):
        return corpus[number]
    rng = random.Random((seed << 40) + number)
    return reader.mutate(rng, rng.choice(corpus), rng.choice(corpus))


class Campaign:
    """Runs of one reader. Leave it by `close`."""

    def __init__(self, reader: Reader, corpus: Sequence[bytes], seed: int) -> None:
        self.outcome = Outcome()
        self._reader = reader
        self._corpus = corpus
        self._seed = seed
        self._crashes = _Crashes()
        self._root = logging.getLogger()
        self._root.addHandler(self._crashes)
        # The engine's lines about damage go nowhere: there are many.
        self._propagated = logging.lastResort
        logging.lastResort = None

    def close(self) -> None:
        """Give logging back."""
        self._root.removeHandler(self._crashes)
        logging.lastResort = self._propagated

    def run(self, number: int) -> None:
        """Feed input `number`."""
        data = made_input(self._reader, self._corpus, self._seed, number)
        self.outcome.inputs += 1
        if number % _MEASURED == 0 or number < len(self._corpus):
            self._measure(number, data)
        else:
            self._read(number, data)

    def _read(self, number: int, data: bytes) -> None:
        self._crashes.errors.clear()
        try:
            self._reader.read(data)
            self.outcome.accepted += 1
        except self._reader.errors:
            pass
        except Exception as error:  # Any undocumented error of a reader is a finding.
            self._find(number, data, repr(error), error)
            return
        for logged in self._crashes.errors[:1]:
            self._find(number, data, f"logged {logged!r}", logged)

    def _measure(self, number: int, data: bytes) -> None:
        # The first reading may import modules and fill caches.
        if self.outcome.measured == 0:
            self._read(number, data)
            self.outcome.accepted = 0
            self.outcome.findings.clear()
        bound = self._reader.fixed_bytes + self._reader.bytes_per_byte * len(data)
        tracemalloc.start()
        try:
            self._read(number, data)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        self.outcome.measured += 1
        self.outcome.share_of_bound = max(self.outcome.share_of_bound, peak / bound)
        if peak > bound:
            self._find(
                number, data, f"memory above the bound: {peak} bytes for {len(data)} of input"
            )

    def _find(
        self, number: int, data: bytes, reason: str, error: BaseException | None = None
    ) -> None:
        self.outcome.findings.append(Finding(number, data, reason, error))
