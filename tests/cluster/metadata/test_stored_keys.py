"""The keys and values that definitions become in etcd, byte for byte as they are published."""

from pathlib import Path

import pytest

from warrenmq.broker.definitions.metadata import (
    NO_ID,
    Change,
    DeleteBinding,
    DeleteExchange,
    DeleteParameter,
    DeletePermission,
    DeleteQueue,
    DeleteSink,
    DeleteTopicPermission,
    DeleteUser,
    DeleteVhost,
    PutBinding,
    PutExchange,
    PutParameter,
    PutPermission,
    PutQueue,
    PutSink,
    PutTopicPermission,
    PutUser,
    PutVhost,
)
from warrenmq.cluster.metadata.change_operations import operations_of
from warrenmq.cluster.metadata.operations import RawDelete, RawPut

GOLDEN = Path(__file__).with_name("stored_keys.txt")
ODD = b"\x00'/%\xff"
PUTS: list[Change] = [
    PutVhost(b"/", 1),
    PutVhost(ODD, 2, "a 'vhost'", ["x", "y"], "classic", True, 9),
    PutUser(b"guest", ODD, "rabbit_password_hashing_sha256", ["administrator", "b\u00e4r"]),
    PutUser(ODD, b"", "", [], 0, 1 << 40),
    PutPermission(b"/", b"guest", ".*", "^$", "a'b"),
    PutPermission(b"/", ODD, "", "", ""),
    PutTopicPermission(b"/", b"guest", ODD, "^a\\.", ""),
    PutParameter(b"/", "policy", "p/\u00e4", '{"pattern":"^a"}'),
    PutParameter(b"", "", "global", "17"),
    PutExchange(b"/", ODD, b"topic", True, False, ODD, False, 7),
    PutExchange(b"/", b"x", b"direct", False, True, b""),
    PutExchange(b"/", b"y", b"", False, False, b"", False),
    PutQueue(b"/", 1, ODD, True, False, ODD, node=b"n@h"),
    PutQueue(b"/", 2, b"q", False, True, b"", 5, b"n@h", True, revision=6),
    PutQueue(b"/", 3, b"m", True, False, b"", node=b"n@h", group=b'{"version":1}'),
    PutQueue(b"/", 4, b"nobody's", False, False, b""),
    PutBinding(b"/", b"x", b"q", True, b"k", b""),
    PutBinding(b"/", b"x", b"q", False, b"", ODD, 3, 1 << 40),
    PutSink(b"/", ODD, 7, [], 1 << 40, 20_000, ODD, b"n@h", 3, 8, 9),
    PutSink(b"/", b"s", 0, []),
]
DELETIONS: list[Change] = [
    DeleteUser(b"guest"),
    DeletePermission(b"/", b"guest"),
    DeleteTopicPermission(b"/", b"guest", ODD),
    DeleteParameter(b"/", "policy", "p/\u00e4"),
    DeleteParameter(b"", "", "global"),
    DeleteExchange(b"/", b"x"),
    DeleteQueue(b"/", NO_ID, b"q"),
    DeleteBinding(b"/", b"x", b"q", True, b"k", b""),
    DeleteSink(b"/", ODD),
    DeleteVhost(ODD),
]


@pytest.mark.parametrize("kind", ["puts", "deletions"])
def test_keys_and_values_stay_as_they_are_published(kind: str) -> None:
    """Nodes of an older warren follow what this one decides, and the other way round."""
    changes = PUTS if kind == "puts" else DELETIONS
    lines = []
    for operation in operations_of("c/d", changes, 5):
        if isinstance(operation, RawPut):
            lease = str(operation.lease)
            lines.append(" ".join(["put", operation.key.decode(), lease, operation.value.decode()]))
        elif isinstance(operation, RawDelete):
            end = operation.range_end.decode()
            lines.append(" ".join(["delete", operation.key.decode(), end]).rstrip())
    golden = GOLDEN.read_text(encoding="utf-8").splitlines()
    assert lines == [line for line in golden if line.startswith(kind[:3])]
