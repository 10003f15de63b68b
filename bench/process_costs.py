"""CPU time of a program and all processes that it starts, by kind of process."""

import subprocess
import threading
from collections.abc import Callable
from contextlib import suppress

import psutil

INTERVAL_S = 0.1


class ProcessCosts(threading.Thread):
    """Samples the process tree of `job` until it ends; CPU time after the last sample is lost.

    `kind` maps a command line to the kind that the CPU time of the process is added to.
    """

    def __init__(self, job: "subprocess.Popen[str]", kind: Callable[[list[str]], str]) -> None:
        super().__init__(daemon=True)
        self._job = job
        self._kind = kind
        # Kind and CPU seconds so far by process id; a reused id counts for the later process only.
        self._seen: dict[int, tuple[str, float]] = {}
        self._is_over = threading.Event()
        self.start()

    def run(self) -> None:
        while not self._is_over.wait(INTERVAL_S):
            self._look()

    def stop(self) -> dict[str, float]:
        """Stop sampling; return CPU seconds by kind."""
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
                # An ending process has no command line: keep the kind of the last sample.
                kind = self._kind(command) if command else self._seen.get(process.pid, ("", 0.0))[0]
                self._seen[process.pid] = kind, times.user + times.system
