"""Counts with strace how often a broker's process asks the kernel to make a file durable.

strace attaches to the running process and slows it down, so nothing is timed meanwhile. Calls are
counted by kind of file: the ending of its name.
"""

import re
import shutil
import signal
import subprocess
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

ATTACH_TIMEOUT_S = 10.0
STOP_TIMEOUT_S = 30.0
# A call as in `123 fdatasync(7</data/journal/1.wal>) = 0`, a write that syncs as in
# `123 pwritev2(7</data/journal/1.wal>, [...], 2, 40, RWF_DSYNC) = 90`, or a sync that the kernel
# does, `123 io_submit(0x7f, 1, [{..., aio_fildes=7</data/journal/1.wal>}]) = 1`. strace shows a
# call that another thread interrupts in two lines; only the first has the file.
_CALL = re.compile(
    r"\b(?:fsync\(|fdatasync\(|pwritev2\((?=.*\bRWF_DSYNC\b)|IOCB_CMD_FDSYNC, aio_fildes=)"
    r"\d+<([^>]*)>"
)


class SyncCount:
    """Counts syncs of `pid` from the construction to `stop`.

    `is_available` is False where strace is missing or may not attach.
    """

    def __init__(self, pid: int, directory: Path) -> None:
        self._path = directory / "strace.log"
        self._path.unlink(missing_ok=True)
        self._process: subprocess.Popen[bytes] | None = None
        if shutil.which("strace") is None:
            return
        self._process = subprocess.Popen(
            [
                "strace",
                "-f",
                "-qq",
                "-y",
                "-e",
                "trace=fsync,fdatasync,pwritev2,io_submit",
                "-o",
                str(self._path),
                "-p",
                str(pid),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        self._await_attached(pid)

    @property
    def is_available(self) -> bool:
        return self._process is not None

    def _await_attached(self, pid: int) -> None:
        deadline = time.monotonic() + ATTACH_TIMEOUT_S
        assert self._process is not None
        while time.monotonic() < deadline and self._process.poll() is None:
            status = Path(f"/proc/{pid}/status").read_text()
            if f"TracerPid:\t{self._process.pid}\n" in status:
                return
            time.sleep(0.02)
        self._process.kill()
        self._process.wait()
        self._process = None

    def stop(self) -> Counter[str]:
        """Detach; return the number of calls by ending of the file's name."""
        if self._process is not None:
            self._process.send_signal(signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(STOP_TIMEOUT_S)
            self._process.kill()
            self._process.wait()
        return count_syncs(self._path.read_text(errors="replace") if self._path.exists() else "")


def count_syncs(text: str) -> Counter[str]:
    """Count the sync calls in strace's output by the ending of the file's name.

    A file without an ending counts under its name.
    """
    return Counter(Path(path).suffix or Path(path).name for path in _CALL.findall(text))
