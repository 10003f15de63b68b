"""Processes of a cluster under test, each in its place in a network.

    node = Party("n1", network, tmp_path, ["warren", "server", ...], ready="warren is ready")
    node.start()

The caller gives the command line. Output goes to the party's log; `start` returns when the log
says `ready`.
"""

import os
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.support.awaiting import eventually
from tests.support.cluster.networks import Network


class Party:
    """One process that may be killed, frozen and started again; its files stay."""

    def __init__(
        self,
        name: str,
        network: Network,
        directory: Path,
        command: Sequence[str],
        ready: str,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.name = name
        self.log_path = directory / f"{name}.log"
        # Over the environment of the tests; may be changed between two starts, for fail points.
        self.environment = dict(environment or {})
        self._network = network
        self._command = command
        self._ready = ready.encode()
        self._process: subprocess.Popen[bytes] | None = None
        # Where the log of the present start begins.
        self._log_start = 0

    @property
    def pid(self) -> int:
        """The process id."""
        assert self._process is not None, f"{self.name} does not run"
        return self._process.pid

    def log(self) -> str:
        """What the process has said since its last start."""
        with self.log_path.open("rb") as file:
            file.seek(self._log_start)
            return file.read().decode(errors="replace")

    def start(self) -> None:
        """Start the process and wait until it is ready."""
        self.launch()
        self.await_ready()

    def launch(self) -> None:
        """Start the process: members of a cluster may wait for each other."""
        assert self._process is None, f"{self.name} runs already"
        with self.log_path.open("ab") as log:
            self._log_start = log.tell()
            self._process = subprocess.Popen(
                [*self._network.prefix(self.name), *self._command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **self.environment},
                # Ctrl-C in the terminal is for the tests, which end the party.
                process_group=0,
            )

    def await_ready(self) -> None:
        """Wait until the log says so. AssertionError if the process ends instead."""
        what = f"{self.name}: {self._ready.decode()}"
        eventually(lambda: self.is_ready() or self.has_ended(), what)
        assert self.is_ready(), f"{self.name} has ended:\n{self.log()[-4000:]}"

    def is_ready(self) -> bool:
        """Whether the log says so."""
        return self._ready.decode() in self.log()

    def has_ended(self) -> bool:
        """Whether the process has ended by itself, or was never started."""
        return self._process is None or self._process.poll() is not None

    def await_end(self) -> int:
        """Wait until the process ends by itself, as at a fail point; returns its exit status."""
        assert self._process is not None
        eventually(self.has_ended, f"{self.name} ends")
        status = self._process.wait()
        self._process = None
        return status

    def kill(self) -> None:
        """End the process by SIGKILL; does nothing if it does not run."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def stop(self) -> int:
        """End the process by SIGTERM and wait; returns its exit status."""
        self.terminate()
        return self.await_end()

    def terminate(self) -> None:
        """Send SIGTERM to the process."""
        os.kill(self.pid, signal.SIGTERM)

    def restart(self) -> None:
        """Kill the process and start it again."""
        self.kill()
        self.start()

    def freeze(self) -> None:
        """Stop the process by SIGSTOP; its connections stay open. Returns when it stands still."""
        os.kill(self.pid, signal.SIGSTOP)
        eventually(self._is_frozen, f"{self.name} stands still")

    def thaw(self) -> None:
        """Let a frozen process continue."""
        os.kill(self.pid, signal.SIGCONT)

    def _is_frozen(self) -> bool:
        # The state stands behind the name of the program, which may hold spaces.
        stat = Path(f"/proc/{self.pid}/stat").read_text()
        return stat.rpartition(")")[2].split()[0] in "Tt"


@contextmanager
def running(parties: Sequence[Party]) -> Iterator[None]:
    """Launch all parties, wait for all, and kill all at the end, whatever happens."""
    try:
        for party in parties:
            party.launch()
        for party in parties:
            party.await_ready()
        yield
    finally:
        for party in parties:
            party.kill()
