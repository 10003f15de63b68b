"""Real etcd servers on loopback, alone or as a cluster, and the means to disturb them."""

import json
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
import urllib3

from tests.support.awaiting import eventually
from tests.support.certificates import Certificate
from warrenmq.cluster.metadata.endpoints import TlsFiles
from warrenmq.cluster.metadata.errors import EtcdUnavailable
from warrenmq.cluster.metadata.gateway import EtcdGateway

HOST = "127.0.0.1"
# A key that users of tests may read.
READABLE = b"/warren/c/"
# Time without a heartbeat after which a leader is elected (ms). A lone member is quick to elect
# itself; several on a loaded machine would elect all the time.
LONE_ELECTION_MS = 100
ELECTION_MS = 1000


class EtcdServer:
    """One member with its directory; it may be stopped, killed, frozen and started again.

    `tls`: its certificate for clients; `authority`: clients must have a certificate that this one
    has issued; `client`: one of them.
    """

    def __init__(
        self,
        directory: Path,
        name: str = "m0",
        tls: Certificate | None = None,
        authority: Certificate | None = None,
        client: TlsFiles | None = None,
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        self.name = name
        scheme = "http" if tls is None else "https"
        self.client_port, self.peer_port = free_ports(2)
        self.url = f"{scheme}://{HOST}:{self.client_port}"
        self.peer_url = f"http://{HOST}:{self.peer_port}"
        self._tls = tls
        self._authority = authority
        self._client = client
        # As `--initial-cluster` wants it.
        self.cluster = f"{name}={self.peer_url}"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the process; `await_ready` returns when it serves."""
        election_ms = ELECTION_MS if "," in self.cluster else LONE_ELECTION_MS
        options = {
            "name": self.name,
            "data-dir": str(self.directory / "data"),
            "listen-client-urls": self.url,
            "advertise-client-urls": self.url,
            "listen-peer-urls": self.peer_url,
            "initial-advertise-peer-urls": self.peer_url,
            "initial-cluster": self.cluster,
            "heartbeat-interval": str(election_ms // 10),
            "election-timeout": str(election_ms),
            "logger": "zap",
            "log-level": "warn",
        }
        if self._tls is not None:
            options["cert-file"] = str(self._tls.certfile)
            options["key-file"] = str(self._tls.keyfile)
        if self._authority is not None:
            options["trusted-ca-file"] = str(self._authority.certfile)
            options["client-cert-auth"] = "true"
        with (self.directory / "log").open("ab") as log:
            self._process = subprocess.Popen(
                ["etcd", *(f"--{name}={value}" for name, value in options.items())],
                stdout=log, stderr=subprocess.STDOUT,
            )  # fmt: skip

    def await_ready(self, gateway: EtcdGateway | None = None) -> None:
        """Return when the member serves; `gateway`: who can tell, if it serves not everybody."""
        own = gateway or EtcdGateway([self.url], tls=self._client)

        def serves() -> bool:
            assert self._process is not None and self._process.poll() is None, self.log()
            try:
                own.revision(READABLE)
            except EtcdUnavailable:
                return False
            return True

        eventually(serves, f"{self.name} serves")
        if gateway is None:
            own.close()

    def log(self) -> str:
        """What the process has said."""
        return (self.directory / "log").read_text()

    def kill(self) -> None:
        """End the process with SIGKILL."""
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)
            self._process.kill()
            self._process.wait()
            self._process = None

    def freeze(self) -> None:
        """Stop the process without its end; connections stay."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let a frozen process go on."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def restart(self) -> None:
        """Kill it, start it again, and wait until it serves."""
        self.kill()
        self.start()
        self.await_ready()

    def wipe(self) -> None:
        """Forget everything: kill it, remove its data and start it, as empty as at first."""
        self.kill()
        shutil.rmtree(self.directory / "data")
        self.restart()

    def raise_space_alarm(self) -> None:
        """Make the member believe that its space is used up, until it is told otherwise."""
        listed = json.loads(self.ctl("member", "list", "-w", "json"))
        member_id = listed["members"][0]["ID"]
        body = json.dumps({"action": "ACTIVATE", "memberID": member_id, "alarm": "NOSPACE"})
        reply = urllib3.request("POST", f"{self.url}/v3/maintenance/alarm", body=body)
        assert reply.status == 200, reply.data

    def ctl(self, *arguments: str, user: str = "") -> str:
        """The output of `etcdctl`; `user` is NAME:PASSWORD."""
        options = ["--endpoints", self.url, *(["--user", user] if user else [])]
        return subprocess.run(
            ["etcdctl", *options, *arguments], check=True, capture_output=True, text=True
        ).stdout


def free_ports(count: int) -> list[int]:
    """Ports that nobody listened on a moment ago."""
    with ExitStack() as stack:
        ports = []
        for _ in range(count):
            taken = stack.enter_context(socket.socket())
            taken.bind((HOST, 0))
            ports.append(int(taken.getsockname()[1]))
    return ports


def require_etcd() -> None:
    """Skip the test if etcd is not installed."""
    for program in ("etcd", "etcdctl"):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed")


@contextmanager
def running_etcd(directory: Path) -> Iterator[EtcdServer]:
    """A cluster of one member, serving."""
    with running_members([EtcdServer(directory)]) as members:
        yield members[0]


@contextmanager
def running_members(members: Sequence[EtcdServer]) -> Iterator[Sequence[EtcdServer]]:
    """The members of one cluster, all serving; they are killed at the end."""
    require_etcd()
    cluster = ",".join(f"{member.name}={member.peer_url}" for member in members)
    try:
        for member in members:
            member.cluster = cluster
            member.start()
        for member in members:
            member.await_ready()
        yield members
    finally:
        for member in members:
            member.kill()


@contextmanager
def running_cluster(directory: Path, count: int) -> Iterator[Sequence[EtcdServer]]:
    """A cluster of `count` members, all serving."""
    members = [EtcdServer(directory / f"m{number}", f"m{number}") for number in range(count)]
    with running_members(members):
        yield members


@pytest.fixture(scope="session")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdServer]:
    """An etcd that all tests share: each has a cluster name of its own, and disturbs nothing."""
    with running_etcd(tmp_path_factory.mktemp("etcd")) as server:
        yield server


@pytest.fixture
def own_etcd(tmp_path: Path) -> Iterator[EtcdServer]:
    """An etcd that the test may kill, freeze and compact."""
    with running_etcd(tmp_path / "etcd") as server:
        yield server


@pytest.fixture
def gateway(etcd: EtcdServer) -> Iterator[EtcdGateway]:
    """A client of the shared etcd."""
    client = EtcdGateway([etcd.url])
    yield client
    client.close()


@pytest.fixture
def cluster_name(request: pytest.FixtureRequest) -> str:
    """A name that no other test has, so its keys are the test's own."""
    return str(request.node.nodeid)
