"""Request and reply of the admin protocol for all reader groups and sinks of a node.

Programs that read or write with them use the requests of `requests.py` and `sinks.py`.
"""

from msgspec import Struct

from warrenmq.admin.protocol.sinks import SinkStatus


class DescribeReaders(Struct, tag="describe_readers", forbid_unknown_fields=True, frozen=True):
    """The reader groups and sinks of all vhosts of this node. Reply: NodeReaders.

    For users with the tag administrator or monitoring; the session needs no vhost.
    """


class GroupFigures(Struct, frozen=True):
    """What a group has reserved (`held`), and how far it is behind: messages, and their age."""

    vhost: str
    group: str
    held: int
    lag: int
    lag_seconds: float


class SinkFigures(Struct, frozen=True):
    """A sink of a vhost."""

    vhost: str
    sink: SinkStatus


class NodeReaders(Struct, tag="node_readers", frozen=True):
    """Groups and sinks, each by vhost and name."""

    groups: list[GroupFigures]
    sinks: list[SinkFigures]
