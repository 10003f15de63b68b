"""A broker for the tests of an application: a `warren server` process with an address of its own.

    with WarrenBroker(tmp_path) as broker:
        connection = pika.BlockingConnection(pika.URLParameters(broker.url))

The pytest fixtures of `pytest_plugin.py` hand out such brokers. Port, node name and data stay the
same over `stop`, `kill` and `start`. The process ends with the process that started it.
"""

import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self
from urllib.parse import quote

if TYPE_CHECKING:
    from warrenmq.admin.client.client import AdminClient

Settings = Mapping[str, object]
Definitions = Mapping[str, Any]

USER: Final = "guest"
PASSWORD: Final = "guest"  # noqa: S105  # the well-known user of every new node
_READY: Final = b"warren is ready: "
# Longer than a start takes on a loaded machine.
_START_TIMEOUT_S: Final = 60.0
_STOP_TIMEOUT_S: Final = 60.0
# Most of a log that goes into an error or a report.
_LOG_BYTES_MAX: Final = 32_768


class BrokerError(Exception):
    """The broker did not start or stop; the text holds the end of its log."""


class WarrenBroker:
    """A broker whose files are below `directory`, which it makes.

    settings: keys and values of the configuration, over the defaults; `WARREN_...` variables of
    the environment do not count. definitions: what `warrenctl export_definitions` writes, imported
    before clients come; the user guest may always log in and use every vhost.
    """

    def __init__(
        self,
        directory: Path,
        settings: Settings | None = None,
        definitions: Definitions | None = None,
    ) -> None:
        self.directory = directory
        self.data_dir = directory / "data"
        self.log_path = directory / "broker.log"
        self.host = "127.0.0.1"
        self._address = _reserved_address(self.host)
        self.port: int = self._address.getsockname()[1]
        # Name of the node, for `warrenctl --node`.
        self.node = f"test-{self.port}@localhost"
        self._settings = dict(settings or {})
        self._process: subprocess.Popen[bytes] | None = None
        self._admin: AdminClient | None = None
        directory.mkdir(parents=True, exist_ok=True)
        if definitions is not None:
            path = directory / "definitions.json"
            path.write_text(json.dumps(with_guest(definitions)))
            self._settings["load_definitions"] = path

    @property
    def url(self) -> str:
        """The AMQP URL of the vhost /, with user and password."""
        return self.vhost_url("/")

    def vhost_url(self, vhost: str) -> str:
        """The AMQP URL of a vhost, with user and password."""
        return f"amqp://{USER}:{PASSWORD}@{self.host}:{self.port}/{quote(vhost, safe='')}"

    @property
    def admin(self) -> "AdminClient":
        """A session of the admin protocol that may do everything: `admin.request(...)`.

        Raises ControlFileError when the broker does not run.
        """
        if self._admin is None:
            from warrenmq.admin.client.client import AdminClient, LocalAddress
            from warrenmq.admin.client.control_file import read_control_file

            self._admin = AdminClient(LocalAddress(read_control_file(self.data_dir)), "tests")
        return self._admin

    @property
    def pid(self) -> int | None:
        """The id of the broker's process; None while there is none."""
        return None if self._process is None else self._process.pid

    def log(self, start: int = 0) -> str:
        """The log from the byte `start` on, without its middle if it is long."""
        with self.log_path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(start, size - _LOG_BYTES_MAX))
            return file.read().decode(errors="replace")

    def log_size(self) -> int:
        """The length of the log in bytes."""
        return self.log_path.stat().st_size

    # -- start and stop ----------------------------------------------------------------------------

    def start(self) -> None:
        """Start the broker and return when clients may connect. Raises BrokerError."""
        if self._process is not None:
            raise BrokerError("the broker runs already")
        command = [sys.executable, "-P", "-m", "warrenmq.testing.child_node", "server"]
        command += ["--data-dir", str(self.data_dir), "--node", self.node]
        command += ["--listen", f"{self.host}:{self.port}"]
        for key, value in self._settings.items():
            command += ["--set", f"{key}={_setting_text(value)}"]
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                env={k: v for k, v in os.environ.items() if not k.startswith("WARREN_")},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                # Ctrl-C in the terminal is for the tests, which stop the broker when they end.
                process_group=0,
            )
        line = _first_line(self._process)
        if not line.startswith(_READY):
            self.kill()
            raise BrokerError(f"the broker did not start; its log ends with\n{self.log()}")

    def stop(self) -> None:
        """Stop the broker cleanly: clients get connection.close, and the data stay.

        Raises BrokerError when the broker does not end with exit status 0.
        """
        if self._process is None:
            return
        process = self._process
        process.send_signal(signal.SIGTERM)
        try:
            status = process.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            status = None
        self.kill()
        if status != 0:
            ended = "did not end" if status is None else f"ended with status {status}"
            raise BrokerError(f"the broker {ended}; its log ends with\n{self.log()}")

    def kill(self) -> None:
        """End the broker as a crash would; what it has confirmed stays."""
        if self._admin is not None:
            self._admin.close()
            self._admin = None
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            for pipe in (self._process.stdin, self._process.stdout):
                assert pipe is not None
                pipe.close()
            self._process = None

    def restart(self) -> None:
        """Stop the broker cleanly and start it again, at the same address. Raises BrokerError."""
        self.stop()
        self.start()

    def close(self) -> None:
        """End the broker and let its port go; its files stay."""
        self.kill()
        self._address.close()

    def remove_files(self) -> None:
        """Remove everything below the broker's directory; the broker must have ended."""
        shutil.rmtree(self.directory, ignore_errors=True)

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def with_guest(definitions: Definitions) -> dict[str, Any]:
    """`definitions` with the vhost / if they have none, and with the user guest in every vhost."""
    completed = dict(definitions)
    vhosts = list(completed.get("vhosts", ())) or [{"name": "/"}]
    users = [user for user in completed.get("users", ()) if user["name"] != USER]
    users.append({"name": USER, "password": PASSWORD, "tags": "administrator"})
    permissions = [each for each in completed.get("permissions", ()) if each["user"] != USER]
    for vhost in vhosts:
        every = {"configure": ".*", "write": ".*", "read": ".*"}
        permissions.append({"user": USER, "vhost": vhost["name"], **every})
    return completed | {"vhosts": vhosts, "users": users, "permissions": permissions}


def _reserved_address(host: str) -> socket.socket:
    """A socket bound to a free port, which the system gives to no other process while it is open.

    The socket never listens, so a server that reuses addresses can, now and after a restart. Two
    test processes therefore never race for a port.
    """
    holder = socket.socket()
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    holder.bind((host, 0))
    return holder


def _setting_text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _first_line(process: subprocess.Popen[bytes]) -> bytes:
    """The first line that `process` prints; what there is of it at its end or after the timeout."""
    assert process.stdout is not None
    line = b""
    deadline = time.monotonic() + _START_TIMEOUT_S
    while not line.endswith(b"\n"):
        remaining_s = max(0.0, deadline - time.monotonic())
        if not select.select([process.stdout], [], [], remaining_s)[0]:
            break
        piece = os.read(process.stdout.fileno(), 4096)
        if not piece:
            break
        line += piece
    return line
