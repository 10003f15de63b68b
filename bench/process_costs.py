"""CPU time of a program and everything it starts, by what the processes are."""

import subprocess
import threading
from collections.abc import Callable
from contextlib import suppress

import psutil

INTERVAL_S = 0.1


class ProcessCosts(threading.Thread):
    """Looks at the tree of processes below `job` until it ends. What a process does after the last look is not seen.

    `kind` makes of a command line the name that its CPU time is added to.
    """

    def __init__(self, job: "subprocess.Popen[str]", kind: Callable[[list[str]], str]) -> None:
        super().__init__(daemon=True)
        self._job = job
        self._kind = kind
        # By process: its kind and its CPU time so far. A number that is used again counts for the later one only.
        self._seen: dict[int, tuple[str, float]] = {}
        self._is_over = threading.Event()
        self.start()

    def run(self) -> None:
        while not self._is_over.wait(INTERVAL_S):
            self._look()

    def stop(self) -> dict[str, float]:
        """CPU seconds by kind."""
        self._is_over.set()
        self.join()
        total: dict[str, float] = {}
        for kind, cpu_s in self._seen.values():
            total[kind] = total.get(kind, 0.0) + cpu_s
        return total

    def _look(self) -> None:
        try:
            root = psutil.Process(self._job.pid)
            tree = [root, *root.children(recursive=True)]
        except psutil.NoSuchProcess:
            return
        for process in tree:
            with suppress(psutil.Error):
                times = process.cpu_times()
                command = process.cmdline()
                # A process at its end has no command line any more.
                kind = self._kind(command) if command else self._seen.get(process.pid, ("", 0.0))[0]
                self._seen[process.pid] = kind, times.user + times.system
