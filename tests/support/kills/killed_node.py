"""A node that is killed under the load of workers and started again, with other settings each time.

Files are small, so journal files retire, checkpoints are taken, and segments and content files are
deleted and compacted all the time. The settings say which queues page, which contents are small,
and how much moves at once.
"""

import os
import random
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.support.awaiting import PATIENCE_S
from tests.support.brokers.process import BrokerProcess
from tests.support.kills.ledger import Worker, let_work

MIB = 1 << 20
# Bytes that may be on disk when all queues are empty: the journal file in use, allocated ahead, and
# one that waits for its checkpoint.
EMPTY_BYTES = 18 * MIB
RECLAIM_TIMEOUT_S = 60.0
# Pieces of work that each worker does before the kill.
LEAST = 10
# Texts in the log that report damage, which a kill must not cause. (A file that was created and not
# written yet is moved aside.)
COMPLAINTS = (
    "Traceback",
    "internal error",
    "is damaged",
    "missing:",
    "lost their content",
    "no usable",
)


class KilledNode:
    """One node through any number of kills; `done` counts events by name.

    Subclasses define `run` and `finish`.
    """

    def __init__(self, node: BrokerProcess, seed: int) -> None:
        self.node = node
        self.random = random.Random(seed)
        self.done: Counter[str] = Counter()
        # A copy of the data as the latest kill left it, for the search for a bug.
        self.image = node.directory / "image"

    def run(self, kills: int, on_round: Callable[[int], None] = lambda _: None) -> None:
        """Kill the node `kills` times; AssertionError for the first broken promise."""
        raise NotImplementedError

    def finish(self) -> None:
        """Check all that can be checked only at the end."""
        raise NotImplementedError

    def start(self) -> None:
        """Start the node with settings chosen at random; no damage may have been found."""
        self.node.settings = (
            "journal_file_size_limit=1MiB",
            f"msg_store_file_size_limit={self.random.choice(('64KiB', '300kB'))}",
            "memory_monitor_interval=100",
            "vm_memory_high_watermark.absolute=2GiB",
            # At a limit below the memory of an empty node every queue must page; far above, none.
            f"vm_memory_high_watermark_paging_ratio={self.random.choice(('0', '0', '0.5'))}",
            f"msg_store_io_batch_size={self.random.choice((16, 200, 2048))}",
            f"queue_index_embed_msgs_below={self.random.choice((0, 1000, 4096, 4096, 50_000))}",
        )
        started = time.monotonic()
        self.node.start()
        self.done["longest start, ms"] = max(
            self.done["longest start, ms"], int((time.monotonic() - started) * 1000)
        )
        self.check_log()

    def kill_under(
        self, workers: Sequence[Worker], longest_s: float = 1.2, shortest_s: float = 0.05
    ) -> None:
        """Start the workers; kill the node while they work, after a time between the two."""
        for worker in workers:
            worker.start()
        # In a share of the rounds the kill may come before any work is done.
        let_work(
            workers,
            self.random.uniform(shortest_s, longest_s),
            0 if self.random.random() < 0.1 else LEAST,
        )
        self.node.kill()
        self.done["kills"] += 1
        for worker in workers:
            worker.join(PATIENCE_S)
            assert not worker.is_alive(), f"{type(worker).__name__} hangs"
            assert worker.failure is None, f"{type(worker).__name__}: {worker.failure!r}"
            self.done[type(worker).__name__] += worker.done

    def keep_image(self) -> None:
        """Keep a copy of the data as the kill left them."""
        shutil.rmtree(self.image, ignore_errors=True)
        shutil.copytree(self.node.directory / "data", self.image)

    def kill_a_start(self) -> None:
        """Kill the next starts at random moments, one to three times."""
        for _ in range(self.random.randrange(1, 4)):
            starting = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "warrenmq",
                    "server",
                    "--data-dir",
                    str(self.node.directory / "data"),
                ],
                env={**os.environ, "WARREN_NODE_PORT": "0"},
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            time.sleep(self.random.uniform(0.2, 1.5))
            starting.kill()
            starting.wait()
            self.done["killed starts"] += 1

    def check_log(self) -> None:
        """Assert that the node has reported no damage."""
        log = self.node.log_path.read_text()
        for complaint in COMPLAINTS:
            at = log.find(complaint)
            assert at == -1, log[max(0, at - 500) : at + 3000]

    def reached(self) -> dict[str, int]:
        """Highest numbers of the store's files: how often files were begun and deleted."""
        store = self.node.directory / "data" / "msg_stores" / "vhosts" / "1"
        return {
            "journal files": highest(store / "journal", ".wal"),
            "content files": highest(store / "msg_store_persistent", ".rdq"),
        }

    def await_small(self) -> None:
        """Wait until the store has given back the space of a node without messages."""
        deadline = time.monotonic() + RECLAIM_TIMEOUT_S
        store = self.node.directory / "data" / "msg_stores" / "vhosts"
        # The content file that the next write would go to remains.
        while (size := disk_bytes(store)) > EMPTY_BYTES or len(
            list(store.glob("*/msg_store_*/*.rdq"))
        ) > 1:
            assert time.monotonic() < deadline, (
                f"{size / MIB:.1f} MiB stay on the disk: {self._listing()}"
            )
            time.sleep(0.2)

    def _listing(self) -> str:
        data = self.node.directory / "data"
        files = [
            (path.stat().st_size, str(path.relative_to(data)))
            for path in data.rglob("*")
            if path.is_file()
        ]
        return ", ".join(f"{name} {size}" for size, name in sorted(files, reverse=True)[:40])


def await_all(
    is_complete: Callable[[], bool], received: Callable[[], int], lack: Callable[[], str]
) -> None:
    """As `eventually`, but patient as long as `received()` grows; `lack()` says what is missing."""
    count, deadline = -1, 0.0
    while not is_complete():
        if received() > count:
            count, deadline = received(), time.monotonic() + PATIENCE_S
        assert time.monotonic() < deadline, lack()


def disk_bytes(directory: Path) -> int:
    """Bytes that the files of a directory take on disk."""
    total = 0
    for parent, _, names in os.walk(directory):
        for name in names:
            try:
                total += os.stat(os.path.join(parent, name)).st_blocks * 512
            except FileNotFoundError:
                continue
    return total


def highest(directory: Path, suffix: str) -> int:
    """The highest number among the file names; 0 when there is none."""
    return max((int(path.stem) for path in directory.glob(f"*{suffix}")), default=0)
