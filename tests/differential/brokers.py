"""The two brokers of a comparison, with what a test does to them besides AMQP.

`rest` returns when a broker has done everything it was asked to do. RabbitMQ's processes send each
other messages without an order that a client could use: `node_control.erl` runs inside the node
and tells when all of them wait. The node has one scheduler, so that it does the same when it is
asked the same, as far as that goes.
"""

import json
import shutil
import socket
import struct
import time
from pathlib import Path
from typing import Protocol

from bench.brokers import RabbitmqBroker
from tests.support.awaiting import PATIENCE_S
from tests.support.brokers.amqp_frames import SocketLink
from tests.support.brokers.amqp_peer import Peer
from tests.support.brokers.memory_broker import MemoryBroker
from warrenmq.broker.policies.policy import check_policy

PLUGINS = ("rabbitmq_consistent_hash_exchange", "rabbitmq_random_exchange")
MODULE = Path(__file__).with_name("node_control.erl")
LOAD = (
    '{ok, M, Code} = compile:file("MODULE", [binary]), '
    '{module, M} = code:load_binary(M, "node_control.erl", Code), M:start("PORT").'
)


class NeverAtRestError(Exception):
    """A broker has been busy for so long that it will never be done; the text tells with what."""


class ComparedBroker(Protocol):
    """A broker of a comparison."""

    name: str

    def peer(self) -> Peer:
        """A new connection, not opened yet."""

    def rest(self) -> None:
        """Return when the broker has done everything it was asked to do.

        Raises NeverAtRestError.
        """

    def elapse(self, ms: int) -> None:
        """Let `ms` pass by the broker's clock."""

    def now_s(self) -> float:
        """The time by the broker's clock."""

    def set_policy(self, component: str, name: str, value: dict[str, object]) -> bool:
        """Set a policy or an operator policy; False when the broker refuses it."""

    def clear_policy(self, component: str, name: str) -> None:
        """Delete a policy, if it exists."""

    def sweep(self) -> None:
        """Delete all policies, and all queues and exchanges of clients."""


class _OneScheduler(RabbitmqBroker):
    """A RabbitMQ node whose processes run one at a time."""

    def _environment(self) -> dict[str, str]:
        found = super()._environment()
        found["RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS"] += " +S 1:1 +SDcpu 1:1"
        return found


class Rabbitmq:
    """A private RabbitMQ node in `directory`, with a control connection into it."""

    name = "RabbitMQ"

    def __init__(self, directory: Path) -> None:
        self._node = _OneScheduler(directory, set())
        (directory / "enabled_plugins").write_text(f"[{','.join(PLUGINS)}].\n")
        self._node.start()
        shutil.copy(MODULE, directory)
        port = directory / "control-port"
        load = LOAD.replace("MODULE", str(directory / MODULE.name)).replace("PORT", str(port))
        self._node.control("eval", load)
        self._socket = socket.create_connection(("127.0.0.1", int(port.read_text())), PATIENCE_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def stop(self) -> None:
        """Stop the node."""
        self._socket.close()
        self._node.stop()

    def peer(self) -> Peer:
        return Peer(SocketLink("127.0.0.1", self._node.port), True)

    def rest(self) -> None:
        answer = self._call("rest")
        if "busy" in answer:
            raise NeverAtRestError(answer["busy"])

    def elapse(self, ms: int) -> None:
        time.sleep(ms / 1000)
        self.rest()

    def now_s(self) -> float:
        return time.time()

    def set_policy(self, component: str, name: str, value: dict[str, object]) -> bool:
        is_set = "ok" in self._call("policy", component, name, value)
        self.rest()
        return is_set

    def clear_policy(self, component: str, name: str) -> None:
        self._call("clear", component, name)
        self.rest()

    def sweep(self) -> None:
        self._call("sweep")
        self.rest()

    def _call(self, *request: object) -> dict[str, object]:
        encoded = json.dumps(request).encode()
        self._socket.sendall(struct.pack(">I", len(encoded)) + encoded)
        (size,) = struct.unpack(">I", self._receive(4))
        answer = json.loads(self._receive(size))
        assert isinstance(answer, dict)
        assert "error" not in answer, answer["error"]
        return answer

    def _receive(self, size: int) -> bytes:
        found = b""
        while len(found) < size:
            part = self._socket.recv(size - len(found))
            assert part, "the control connection has ended"
            found += part
        return found


class Warren:
    """Warren's engine in memory: time moves when a test says so, and errors have a traceback."""

    name = "warren"

    def __init__(self) -> None:
        self._memory = MemoryBroker()

    def peer(self) -> Peer:
        return Peer(self._memory.connect())

    def rest(self) -> None:
        self._memory.pump()

    def is_at_rest(self) -> bool:
        """Whether no message moves from queue to queue any more."""
        published = self._published()
        self._memory.pump()
        return self._published() == published

    def _published(self) -> int:
        queues = self._memory.vhost.queues.values()
        return sum(int(one.counters.published) for queue in queues for one in queue.backings())

    def elapse(self, ms: int) -> None:
        self._memory.advance(ms)

    def now_s(self) -> float:
        return self._memory.now_ms / 1000

    def set_policy(self, component: str, name: str, value: dict[str, object]) -> bool:
        text = json.dumps(value)
        try:
            check_policy(component, name, text)
        except ValueError:
            return False
        self._memory.vhost.put_parameter(component, name, text)
        self._apply_policies()
        return True

    def clear_policy(self, component: str, name: str) -> None:
        policies = self._memory.vhost.policies
        known = policies.policies() if component == "policy" else policies.operator_policies()
        if any(policy.name == name for policy in known):
            self._memory.vhost.delete_parameter(component, name)
            self._apply_policies()

    def sweep(self) -> None:
        """Begin anew: a new broker has nothing in it."""
        for link in list(self._memory.links):
            link.close()
        self._memory.vhost.check()
        self._memory = MemoryBroker()

    def _apply_policies(self) -> None:
        while self._memory.vhost.policies.is_applying():
            self._memory.pump()
        self._memory.pump()
