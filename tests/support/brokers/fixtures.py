"""Fixtures for tests that need a broker; a conftest imports the ones that it offers.

`broker_uri` is a broker process that the tests of one directory share, or the broker that
WARREN_TEST_AMQP_URI names. When that broker is a RabbitMQ, the run checks the tests themselves.
`amqp` gives protocol tests peers, once with the engine in memory and once with the broker process.
"""

import json
import os
import random
import shlex
import subprocess
import time
from collections.abc import Callable, Iterator
from urllib.parse import urlsplit

import pytest

from tests.support.brokers.amqp_frames import SocketLink
from tests.support.brokers.amqp_peer import ChannelPeer, Peer
from tests.support.brokers.memory_broker import MemoryBroker
from tests.support.brokers.process import BrokerProcess
from tests.support.skips import does_not_apply
from warrenmq.admin.client.client import AdminClient, NodeAddress
from warrenmq.admin.protocol.control import ClearPolicy, Done, PolicyKind, SetPolicy
from warrenmq.broker.definitions.settings import Settings

FOREIGN_URI = os.environ.get("WARREN_TEST_AMQP_URI", "")
# The command that controls that broker, if it is a RabbitMQ.
RABBITMQCTL = shlex.split(os.environ.get("WARREN_TEST_RABBITMQCTL", ""))
# Patience (ms) for events that the broker brings about itself: a loaded machine takes its time, the
# engine in memory a tick or two.
PATIENCE_MS = 60_000
ENGINE_PATIENCE_MS = 50


@pytest.fixture(scope="session")
def broker_uri(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """URI of a running broker."""
    if FOREIGN_URI:
        yield FOREIGN_URI
        return
    process = BrokerProcess(tmp_path_factory.mktemp("broker"))
    process.start()
    yield process.uri
    assert process.stop() == 0
    log = process.log_path.read_text()
    assert "internal error" not in log, log[-4000:]
    assert "Traceback" not in log, log[-4000:]


class Amqp:
    """Makes peers, each with a link of its own to the broker under test."""

    def __init__(self, uri: str) -> None:
        self.uri = uri
        self.memory: MemoryBroker | None = None if uri else MemoryBroker()
        self.peers: list[Peer] = []
        self._names = 0
        self._run = f"{random.getrandbits(40):010x}"
        # Policies that the test has set, by kind and name.
        self._policies: set[tuple[PolicyKind, str]] = set()

    @property
    def is_foreign(self) -> bool:
        """Whether the broker is another product, run for comparison."""
        return bool(self.uri) and self.uri == FOREIGN_URI

    def configure(self, settings: Settings) -> None:
        """Use a broker with these settings; skips the test unless the broker is in memory."""
        if self.memory is None:
            does_not_apply("settings of its own: in memory only")
        self.memory = MemoryBroker(settings)

    def engine(self) -> MemoryBroker:
        """The broker in memory; skips the test if there is none."""
        if self.memory is None:
            does_not_apply("looks into the engine: in memory only")
        return self.memory

    def departure(self, reason: str) -> None:
        """Skip the test on RabbitMQ: warren departs from it, or does not do the same yet."""
        if self.is_foreign:
            does_not_apply(f"departure: {reason}")

    def slow_in_real_time(self) -> None:
        """Skip a test that waits for seconds on a warren process: memory tests cover it fast."""
        if self.uri and not self.is_foreign:
            does_not_apply("takes seconds of real time; covered in memory")

    def raw(self, is_loopback: bool = True) -> Peer:
        """A link on which nothing was sent yet."""
        if self.memory is not None:
            peer = Peer(self.memory.connect(is_loopback))
        else:
            parts = urlsplit(self.uri)
            peer = Peer(
                SocketLink(parts.hostname or "127.0.0.1", parts.port or 5672), self.is_foreign
            )
        self.peers.append(peer)
        return peer

    def connect(
        self,
        channel_max: int = 2047,
        frame_max: int = 131072,
        heartbeat: int = 0,
        capabilities: dict[str, object] | None = None,
        user: bytes = b"guest",
    ) -> Peer:
        """An open connection."""
        return self.raw().open(channel_max, frame_max, heartbeat, capabilities, user)

    def channel(self) -> ChannelPeer:
        """A channel on a connection of its own."""
        return self.connect().channel()

    def name(self, prefix: str = "q") -> bytes:
        """A name that no other test uses."""
        self._names += 1
        return f"{prefix}-{self._run}-{self._names}".encode()

    def pause(self, ms: int) -> None:
        """Let `ms` pass by the broker's clock."""
        if self.memory is not None:
            self.memory.advance(ms)
        else:
            time.sleep(ms / 1000)

    def now_ms(self) -> float:
        """Time by a clock that runs as fast as the broker's."""
        return float(self.memory.now_ms) if self.memory is not None else time.monotonic() * 1000

    def has_passed(self, ms: int, since_ms: float) -> bool:
        """Whether `ms` may have passed; the broker's clock, in whole ms, may be 1 ms ahead."""
        return self.now_ms() - since_ms >= ms - 1

    def eventually(self, holds: Callable[[], bool]) -> None:
        """Wait until `holds()` is true."""
        started_ms = self.now_ms()
        patience_ms = PATIENCE_MS if self.memory is None else ENGINE_PATIENCE_MS
        while not holds():
            assert not self.has_passed(patience_ms, started_ms), "it never comes about"
            self.pause(10)

    def set_policy(self, queue: bytes, kind: PolicyKind = "policy", **definition: object) -> None:
        """Set the policy of `queue`, or its operator policy; `__` in a key stands for a dash.

        It takes a moment until it applies, and until it no longer does.
        """
        name = queue.decode()
        values = {key.replace("__", "-"): value for key, value in definition.items()}
        text, pattern = json.dumps(values), f"^{name}$"
        if self.memory is not None:
            whole = {"pattern": pattern, "apply-to": "queues", "priority": 0, "definition": values}
            self.memory.vhost.put_parameter(kind, name, json.dumps(whole))
        elif self.is_foreign:
            self._control("set_" + kind, name, pattern, text, "--apply-to", "queues")
        else:
            with AdminClient(NodeAddress(self.uri)) as client:
                request = SetPolicy(
                    vhost="/", name=name, pattern=pattern, definition=text, kind=kind
                )
                client.request(request, Done)
        self._policies.add((kind, name))

    def clear_policy(self, queue: bytes, kind: PolicyKind = "policy") -> None:
        """Delete the policy that `set_policy` has set."""
        name = queue.decode()
        self._policies.remove((kind, name))
        if self.memory is not None:
            self.memory.vhost.delete_parameter(kind, name)
        elif self.is_foreign:
            self._control("clear_" + kind, name)
        else:
            with AdminClient(NodeAddress(self.uri)) as client:
                client.request(ClearPolicy(vhost="/", name=name, kind=kind), Done)

    def _control(self, *arguments: str) -> None:
        if not RABBITMQCTL:
            does_not_apply("policies: no command to control this broker")
        subprocess.run([*RABBITMQCTL, *arguments], check=True, stdout=subprocess.DEVNULL)

    def close(self) -> None:
        for kind, name in list(self._policies):
            self.clear_policy(name.encode(), kind)
        for peer in self.peers:
            peer.drop()


@pytest.fixture(params=["server"] if FOREIGN_URI else ["memory", "server"])
def amqp(request: pytest.FixtureRequest) -> Iterator[Amqp]:
    """The broker under test, for one test."""
    uri = request.getfixturevalue("broker_uri") if request.param == "server" else ""
    amqp = Amqp(uri)
    yield amqp
    amqp.close()
