"""A node with its HTTP API, as `warren server` runs them, and clients of the API."""

import re
from pathlib import Path
from typing import Any

import httpx

from tests.support.awaiting import eventually
from tests.support.brokers.process import BrokerProcess
from warrenmq.admin.client.client import AdminClient, LocalAddress
from warrenmq.admin.client.control_file import read_control_file
from warrenmq.admin.protocol.control import (
    AddUser,
    AddVhost,
    ControlRequest,
    Done,
    SetPermissions,
    SetUserTags,
)

_READY = re.compile(r"the HTTP API is ready: (https?://\S+/)api/")
_METRICS = re.compile(r"metrics are ready: (\S+)")


class HttpNode:
    """A node whose API listens on a free loopback port; `node` of a cluster, or one alone."""

    def __init__(self, directory: Path, node: BrokerProcess | None = None) -> None:
        self.node = node or BrokerProcess(directory)
        self.node.management = "127.0.0.1:0"
        self._clients: list[httpx.Client] = []

    def start(self) -> None:
        """Start the node; returns when the API is ready."""
        starts = len(self._starts())
        self.node.start()
        self.await_start(starts)

    def await_start(self, starts: int) -> None:
        """Return once the API has become ready more than `starts` times."""
        eventually(lambda: len(self._starts()) > starts, "the HTTP API is ready")

    def _starts(self) -> list[str]:
        path = self.node.log_path
        return _READY.findall(path.read_text()) if path.exists() else []

    @property
    def url(self) -> str:
        """The root of the API that started last."""
        return self._starts()[-1]

    @property
    def pid(self) -> int:
        """The process id of the node."""
        assert self.node.process is not None
        return self.node.process.pid

    @property
    def management_pid(self) -> int:
        """The process id of the API."""
        for children in Path(f"/proc/{self.pid}/task").glob("*/children"):
            for pid in children.read_text().split():
                if b"--supervised" in Path(f"/proc/{pid}/cmdline").read_bytes():
                    return int(pid)
        raise AssertionError("there is no such process")

    @property
    def jobs_directory(self) -> Path:
        """The directory below which jobs read and write."""
        return self.node.directory / "data" / "jobs"

    @property
    def metrics_url(self) -> str:
        """The address of metrics without a login."""
        log = self.node.log_path
        eventually(lambda: bool(_METRICS.search(log.read_text())), "metrics are ready")
        return str(_METRICS.findall(log.read_text())[-1])

    @property
    def starts(self) -> int:
        """How often the API has become ready."""
        return len(self._starts())

    def client(self, user: str = "guest", password: str = "guest") -> httpx.Client:
        """A client that logs in as the user; closed with the node."""
        client = httpx.Client(base_url=f"{self.url}api/", auth=(user, password), timeout=30)
        self._clients.append(client)
        return client

    def control(self, *requests: ControlRequest) -> None:
        """Carry out operations as a local administrator."""
        control = read_control_file(self.node.directory / "data")
        with AdminClient(LocalAddress(control)) as client:
            for request in requests:
                client.request(request, Done)

    def add_user(self, name: str, *tags: str, vhosts: tuple[str, ...] = ("/",)) -> httpx.Client:
        """A client of a new user, whose password is its name, with all rights in `vhosts`."""
        self.control(
            AddUser(name=name, password=name),
            SetUserTags(name=name, tags=list(tags)),
            *(AddVhost(name=vhost) for vhost in vhosts),
            *(
                SetPermissions(vhost=vhost, user=name, configure=".*", write=".*", read=".*")
                for vhost in vhosts
            ),
        )
        return self.client(name, name)

    def close(self) -> None:
        """Close the clients."""
        for client in self._clients:
            client.close()

    def stop(self) -> None:
        """Stop the node and close the clients."""
        self.close()
        if self.node.process is not None:
            self.node.stop()


def refusal(reply: httpx.Response) -> tuple[int, Any, Any]:
    """Status, error and reason of a reply that refuses."""
    body = reply.json()
    assert sorted(body) == ["error", "reason"]
    return reply.status_code, body["error"], body["reason"]
