"""Two nodes' links without sockets: bytes move by hand, and the clock stands still."""

import itertools

from mypy_extensions import i64

from warrenmq.cluster.links.handshake import Identity
from warrenmq.cluster.links.link import Link, LinkHandler
from warrenmq.cluster.links.link_secrets import LinkSecrets
from warrenmq.cluster.links.links import Links

SECRET = b"only the cluster knows"
ADDRESSES = {"a@one": ("10.0.0.1", 25672), "b@two": ("10.0.0.2", 25672)}
# Where the accepting node sees the dialling one.
FROM = "10.0.0.1:40000"
TO = "10.0.0.2:25672"


class Recorder(LinkHandler):
    """A handler that keeps what it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.up: list[Link] = []
        self.frames: list[tuple[int, bytes]] = []
        self.reasons: list[str] = []

    def on_up(self, link: Link) -> None:
        self.up.append(link)

    def on_frame(self, link: Link, kind: i64, payload: bytes) -> None:
        self.frames.append((kind, payload))

    def on_down(self, link: Link, reason: str) -> None:
        self.up.remove(link)
        self.reasons.append(reason)


def identity(name: str, incarnation: int = 1, data_format: int = 1) -> Identity:
    return Identity(
        cluster_id="5f2d",
        cluster_name="blue",
        node_name=name,
        replica_id=f"replica of {name}",
        incarnation=incarnation,
        software_version="0.1.0",
        data_format=data_format,
    )


class TestNode:
    """A node that has nothing but links."""

    __test__ = False

    def __init__(
        self, own: Identity, secret: bytes = SECRET, handler: Recorder | None = None
    ) -> None:
        self.handler = handler or Recorder()
        numbers = itertools.count()
        self.links = Links(
            own,
            LinkSecrets(0, secret),
            self.handler,
            lambda size: next(numbers).to_bytes(size, "big"),
        )
        self.links.set_peers(ADDRESSES, 0)


def output(link: Link) -> bytes:
    """Everything that `link` has to send."""
    parts = []
    while taken := link.take_output():
        parts += taken
    return b"".join(parts)


def shuttle(one: Link, other: Link, now_ms: int = 0) -> None:
    """Move bytes until neither side has any; the connection ends with the first side to go down."""
    while True:
        sent = output(one), output(other)
        if sent == (b"", b""):
            break
        other.receive(sent[0], now_ms)
        one.receive(sent[1], now_ms)
    for side, rest in ((one, other), (other, one)):
        if side.is_down:
            rest.lost("the connection was closed")


def connect(dialler: TestNode, acceptor: TestNode, now_ms: int = 0) -> tuple[Link, Link]:
    """Both ends of a new connection after its handshake, whatever came of it."""
    one = dialler.links.dialled("b@two", TO, now_ms)
    other = acceptor.links.accepted(FROM, now_ms)
    shuttle(one, other, now_ms)
    return one, other


def connected() -> tuple[TestNode, TestNode, Link, Link]:
    """Two nodes, and both ends of the link between them."""
    one, other = TestNode(identity("a@one")), TestNode(identity("b@two"))
    ends = connect(one, other)
    assert ends[0].is_up and ends[1].is_up
    return one, other, *ends
