"""The brokers under test: each listens on the loopback and keeps its data in a given directory.

Every process that a broker starts belongs to its process tree; `usage` adds up the tree's CPU time
and memory. `kill` sends SIGKILL to the whole tree, for the restart workload; a `start` after it
finds the data again.
"""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import psutil

from bench.certificate import Certificate
from bench.ports import await_port, held_port
from bench.visitor import Visitor
from warrenmq.build import build_name
from warrenmq.perf.client import Client
from warrenmq.perf.errors import PerfError
from warrenmq.perf.options import parse_uri

START_TIMEOUT_S = 240.0
STOP_TIMEOUT_S = 60.0
POLL_S = 0.02


class BrokerError(Exception):
    """A broker did not start, or ended by itself; the text holds the end of its log."""


@dataclass
class Usage:
    """CPU time so far and resident memory, summed over a broker's processes."""

    cpu_s: float
    rss_bytes: int


class Broker:
    """One node; subclasses define `version`, `start` and `_data_directory`.

    `cores`: the CPUs it may use (empty: all); `settings`: lines of rabbitmq.conf.

    `port`: listen there on every address; without one on a free port of the loopback.
    `certificate`: also listen with TLS, on a free port of the loopback.
    """

    name = ""

    def __init__(
        self,
        directory: Path,
        cores: set[int],
        settings: tuple[str, ...] = (),
        port: int | None = None,
        certificate: Certificate | None = None,
    ) -> None:
        self.directory = directory
        self.cores = cores
        self.settings = settings
        # The TLS listener, "" without one.
        self.tls_uri = ""
        if certificate is not None:
            tls_port = held_port(self)
            self.settings += certificate.settings(tls_port)
            self.tls_uri = (
                f"amqps://guest:guest@127.0.0.1:{tls_port}/%2F?cacertfile={certificate.certfile}"
            )
        self.port = held_port(self) if port is None else port
        # Value of listeners.tcp.default.
        self.listener = f"127.0.0.1:{self.port}" if port is None else str(port)
        self.process: subprocess.Popen[bytes] | None = None
        directory.mkdir(parents=True, exist_ok=True)

    @property
    def uri(self) -> str:
        return f"amqp://guest:guest@127.0.0.1:{self.port}/%2F"

    def version(self) -> str:
        """Name the broker, its version and its cores, for the head of the report."""
        raise NotImplementedError

    def start(self) -> None:
        """Start the node, and return when it serves AMQP."""
        raise NotImplementedError

    def stop(self) -> None:
        """SIGTERM, then SIGKILL after STOP_TIMEOUT_S; no effect when the broker does not run."""
        if self.process is None:
            return
        tree = self._tree()
        # The broker's process gets the SIGTERM: wrapper scripts have replaced themselves by it.
        self.process.terminate()
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(STOP_TIMEOUT_S)
        self._end(tree)

    def kill(self) -> None:
        """SIGKILL the whole process tree, as a crash would."""
        if self.process is not None:
            self._end(self._tree())

    def usage(self) -> Usage:
        usage = Usage(0.0, 0)
        for process in self._tree():
            with suppress(psutil.NoSuchProcess):
                times = process.cpu_times()
                usage.cpu_s += times.user + times.system
                usage.rss_bytes += process.memory_info().rss
        return usage

    def running_cpu_s(self) -> float:
        """CPU time (s) of all living threads by the scheduler's clock, which counts nanoseconds.

        `usage` counts in hundredths of a second. A kernel without that clock gives the same.
        """
        total_ns = 0
        for process in self._tree():
            for path in Path(f"/proc/{process.pid}/task").glob("*/schedstat"):
                # A thread may end between the listing and the reading.
                with suppress(OSError):
                    total_ns += int(path.read_text().split()[0])
        return total_ns / 1e9 or self.usage().cpu_s

    def peak_rss_bytes(self) -> int:
        """Highest resident memory in bytes of the tree, since start or the last `reset_peak`."""
        return sum(_status_bytes(process.pid, "VmHWM") for process in self._tree())

    def reset_peak(self) -> None:
        """Restart the measurement of `peak_rss_bytes`."""
        for process in self._tree():
            with suppress(OSError):
                Path(f"/proc/{process.pid}/clear_refs").write_text("5")

    def disk_bytes(self) -> int:
        """Disk space that the node's data occupy, in bytes."""
        total = 0
        for path in self._data_directory().rglob("*"):
            # The running broker may delete a file between the listing and the stat.
            with suppress(OSError):
                total += path.stat().st_blocks * 512
        return total

    def forget_pages(self) -> None:
        """Have the system write the node's files, and drop them from its page cache."""
        os.sync()
        for path in self._data_directory().rglob("*"):
            # The running broker may delete a file meanwhile; a directory cannot be dropped.
            with suppress(OSError):
                file = os.open(path, os.O_RDONLY)
                try:
                    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
                finally:
                    os.close(file)

    def pid(self) -> int:
        """Process id of the broker itself: RabbitMQ's Erlang VM, otherwise the first process."""
        tree = self._tree()
        workers = [process for process in tree if process.name() == "beam.smp"]
        return int((workers or tree)[0].pid)

    def _data_directory(self) -> Path:
        """Directory of the node's data; each kind of broker defines it."""
        raise NotImplementedError

    def _tree(self) -> list[psutil.Process]:
        if self.process is None:
            return []
        try:
            root = psutil.Process(self.process.pid)
            return [root, *root.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []

    def _end(self, tree: list[psutil.Process]) -> None:
        for process in tree:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(tree, timeout=10)
        if self.process is not None:
            self.process.wait()
            self.process = None

    def _spawn(
        self, command: list[str], environment: dict[str, str], directory: Path, log: IO[bytes]
    ) -> None:
        self.process = subprocess.Popen(
            command,
            env=environment,
            cwd=directory,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            # Ctrl-C must reach the benchmark only, which then stops the broker.
            start_new_session=True,
            preexec_fn=pinned_to(self.cores),
        )

    def _await_amqp(self) -> None:
        """Wait for a whole AMQP handshake: a port may be open long before the broker answers."""
        deadline = time.monotonic() + START_TIMEOUT_S
        while True:
            assert self.process is not None
            if self.process.poll() is not None:
                raise BrokerError(
                    f"{self.name} ended with status {self.process.returncode}: {self._log_end()}"
                )
            try:
                Client(parse_uri(self.uri), "bench", 5.0).close()
                return
            except PerfError as error:
                if time.monotonic() > deadline:
                    raise BrokerError(
                        f"{self.name} does not answer ({error}): {self._log_end()}"
                    ) from None
            time.sleep(POLL_S)

    def _log_path(self) -> Path:
        return self.directory / "console.log"

    def _log_end(self) -> str:
        return self._log_path().read_text(errors="replace")[-2000:]


class WarrenBroker(Broker):
    """`warren server`, run by the Python that runs the benchmark."""

    name = "warren"
    # Where its HTTP API listens, or `off`.
    management = "off"

    def version(self) -> str:
        return f"warren {build_name()}, {cores_text(self.cores)}"

    def start(self) -> None:
        command = [sys.executable, "-m", "warrenmq", "server"]
        command += ["--data-dir", str(self._data_directory())]
        command += ["--set", f"listeners.tcp.default={self.listener}"]
        command += ["--management", self.management]
        for setting in self.settings:
            command += ["--set", setting]
        with self._log_path().open("ab") as log:
            self._spawn(command, dict(os.environ), Path.cwd(), log)
        self._await_amqp()

    def _data_directory(self) -> Path:
        return self.directory / "data"


class AskedWarrenBroker(WarrenBroker):
    """`warren server` with its management process, which a client asks every second."""

    name = "warren + API"
    # The client, which gets the port as argument.
    visitor = "bench.asked_api"

    def start(self) -> None:
        port = held_port(self)
        self.management = f"127.0.0.1:{port}"
        super().start()
        self._visitor = Visitor(self.visitor, port)

    def stop(self) -> None:
        if self.process is not None:
            print(f"{self.name}: {self._visitor.stop()}")
        super().stop()

    def kill(self) -> None:
        self._visitor.stop()
        super().kill()


class PagesWarrenBroker(AskedWarrenBroker):
    """`warren server` with two of its web pages open."""

    name = "warren + pages"
    visitor = "bench.open_pages"


class RabbitmqBroker(Broker):
    """An installed RabbitMQ as a private node on the loopback.

    The node has a name, cookie, home, directories, ports and epmd of its own.
    """

    name = "RabbitMQ"

    def __init__(
        self,
        directory: Path,
        cores: set[int],
        settings: tuple[str, ...] = (),
        port: int | None = None,
        certificate: Certificate | None = None,
    ) -> None:
        super().__init__(directory, cores, settings, port, certificate)
        self.epmd_port = held_port(self)
        self.distribution_port = held_port(self)
        self.epmd: subprocess.Popen[bytes] | None = None
        (directory / "home").mkdir(exist_ok=True)
        cookie = directory / "home" / ".erlang.cookie"
        if not cookie.exists():
            cookie.write_text(os.urandom(16).hex())
            cookie.chmod(0o400)
        (directory / "enabled_plugins").write_text("[].\n")
        (directory / "rabbitmq.conf").write_text(
            f"listeners.tcp.default = {self.listener}\nlog.console = false\n"
            # RabbitMQ's default, 40 % of memory, stated because it decides when publishers block.
            "vm_memory_high_watermark.relative = 0.4\n"
            + "".join(f"{setting}\n" for setting in self.settings)
        )

    def version(self) -> str:
        return f"RabbitMQ {rabbitmq_version()}, {cores_text(self.cores)}"

    def start(self) -> None:
        if self.epmd is None:
            # Without this epmd, Erlang starts a daemon that listens on every address and never
            # ends.
            self.epmd = subprocess.Popen(
                ["epmd", "-port", str(self.epmd_port), "-address", "127.0.0.1"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
            await_port(self.epmd_port)
        with self._log_path().open("ab") as log:
            self._spawn([self._script("rabbitmq-server")], self._environment(), self.directory, log)
        self._await_amqp()

    def control(self, *arguments: str) -> None:
        """Run `rabbitmqctl` on the node; CalledProcessError when it fails."""
        self.run_tool("rabbitmqctl", *arguments).check_returncode()

    def run_tool(
        self, tool: str, *arguments: str, stdin: str = ""
    ) -> subprocess.CompletedProcess[str]:
        """Run one of RabbitMQ's command line tools on the node."""
        return subprocess.run(
            [*self.tool_command(tool), *arguments],
            cwd=self.directory,
            check=False,
            capture_output=True,
            text=True,
            input=stdin,
        )

    def tool_command(self, tool: str) -> list[str]:
        """The command that runs one of RabbitMQ's command line tools on the node."""
        variables = [f"{name}={value}" for name, value in self._environment().items()]
        return ["env", "-i", *variables, self._script(tool)]

    def node_directory(self) -> Path:
        """Directory of the node's data, below the base directory of all nodes."""
        return self._data_directory() / self.node_name()

    def node_name(self) -> str:
        """Name of the Erlang node."""
        return f"warren-bench-{self.port}@localhost"

    def _script(self, name: str) -> str:
        server = rabbitmq_server()
        assert server is not None
        return str(Path(server).with_name(name))

    def _environment(self) -> dict[str, str]:
        return {
            "PATH": os.environ.get("PATH", os.defpath),
            "LANG": "C.UTF-8",
            "HOME": str(self.directory / "home"),
            "ERL_EPMD_PORT": str(self.epmd_port),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODENAME": self.node_name(),
            "RABBITMQ_DIST_PORT": str(self.distribution_port),
            "RABBITMQ_MNESIA_BASE": str(self._data_directory()),
            "RABBITMQ_LOG_BASE": str(self.directory / "log"),
            "RABBITMQ_CONFIG_FILE": str(self.directory / "rabbitmq.conf"),
            # Ignore the settings and plugins of the machine's own RabbitMQ.
            "RABBITMQ_CONF_ENV_FILE": str(self.directory / "no-rabbitmq-env.conf"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self.directory / "enabled_plugins"),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
        }

    def _data_directory(self) -> Path:
        return self.directory / "mnesia"

    def stop(self) -> None:
        super().stop()
        if self.epmd is not None:
            self.epmd.kill()
            self.epmd.wait()
            self.epmd = None


def rabbitmq_server() -> str | None:
    """Path of a server script that any user may run, or None when there is none.

    Debian's script on PATH insists on its own user, so the one in the library directory comes
    first.
    """
    candidates = [Path("/usr/lib/rabbitmq/bin/rabbitmq-server")]
    on_path = shutil.which("rabbitmq-server")
    if on_path is not None:
        candidates.append(Path(on_path))
    for candidate in candidates:
        if os.access(candidate, os.X_OK) and shutil.which("epmd") is not None:
            return str(candidate)
    return None


def rabbitmq_version() -> str:
    """Version of the installed RabbitMQ, from the name of its application directory.

    `rabbitmqctl version` would start a whole Erlang VM.
    """
    for path in Path("/usr/lib/rabbitmq/lib").glob("rabbitmq_server-*"):
        return path.name.removeprefix("rabbitmq_server-")
    return "of unknown version"


def _status_bytes(pid: int, field: str) -> int:
    """Return a size field of /proc/PID/status in bytes; 0 when the process has ended."""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith(field + ":"):
                return int(line.split()[1]) * 1024
    return 0


def pinned_to(cores: set[int]) -> Callable[[], None] | None:
    """Return a `preexec_fn` that pins the new process to `cores`; None when `cores` is empty."""
    if not cores:
        return None

    def pin() -> None:
        os.sched_setaffinity(0, cores)

    return pin


def cores_text(cores: set[int]) -> str:
    if not cores:
        return f"all {os.cpu_count()} cores"
    return "core " + ",".join(str(core) for core in sorted(cores))
