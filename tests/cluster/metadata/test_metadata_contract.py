"""The contract of `Metadata`, kept by a node's own store and by a cluster's, for what both store.

A node's own store has ids, a cluster's has births and revisions, and either leaves the other's out:
the tests compare everything else. Bindings here have predeclared exchanges and queues of no birth
as ends; `test_etcd_metadata.py` has those with births.
"""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.etcd import EtcdServer
from warrenmq.broker.definitions.metadata import (
    Change,
    Definitions,
    DeleteBinding,
    DeleteExchange,
    DeleteParameter,
    DeletePermission,
    DeleteQueue,
    DeleteTopicPermission,
    DeleteUser,
    DeleteVhost,
    Metadata,
    PutBinding,
    PutExchange,
    PutParameter,
    PutPermission,
    PutQueue,
    PutTopicPermission,
    PutUser,
    PutVhost,
)
from warrenmq.broker.definitions.metadata_sqlite import SqliteMetadata
from warrenmq.cluster.metadata.etcd_metadata import EtcdMetadata
from warrenmq.cluster.metadata.gateway import EtcdGateway

# Opens the store of the test, again each time.
Open = Callable[[], Metadata]

ODD = b"\x00'\xff;--/%2F"
EVERYTHING: list[Change] = [
    PutVhost(b"/", 1),
    PutVhost(ODD, 2, "a 'vhost'", ["x", "y"], "classic", True),
    PutUser(b"guest", ODD, "rabbit_password_hashing_sha256", ["administrator", "b\u00e4r"]),
    PutUser(ODD, b"", "", [], 0, 1 << 40),
    PutPermission(b"/", b"guest", ".*", "^$", "a'b"),
    PutPermission(ODD, ODD, "", "\u00e4", ""),
    PutTopicPermission(b"/", b"guest", ODD, "^a\\.", ""),
    PutParameter(b"/", "policy", "p/1", '{"pattern":"^a"}'),
    PutParameter(b"/", "operator_policy", "p/1", '{"pattern":"^b"}'),
    PutParameter(b"", "", "global", "17"),
    PutExchange(b"/", ODD, b"topic", True, False, ODD),
    PutExchange(b"/", b"x", b"direct", False, True, b""),
    PutQueue(b"/", 1, ODD, True, False, ODD),
    PutQueue(b"/", 2, b"q", True, True, b""),
    PutBinding(b"/", b"amq.topic", b"r", True, b"k", b""),
    PutBinding(b"/", b"amq.topic", b"r", True, b"k", ODD),
    PutBinding(b"/", b"amq.topic", b"amq.direct", False, ODD, ODD),
]


@pytest.fixture(params=["sqlite", "etcd"])
def open_store(request: pytest.FixtureRequest, tmp_path: Path, cluster_name: str) -> Iterator[Open]:
    opened: list[Metadata] = []

    def open_anew() -> Metadata:
        if request.param == "sqlite":
            opened.append(SqliteMetadata(tmp_path / "node.sqlite"))
        else:
            etcd: EtcdServer = request.getfixturevalue("etcd")
            opened.append(EtcdMetadata(EtcdGateway([etcd.url]), cluster_name))
        return opened[-1]

    yield open_anew
    for metadata in opened:
        metadata.close()


def attributes(change: Change) -> tuple[object, ...]:
    names = [name for name in dir(change) if not name.startswith("_")]
    shared = [name for name in names if name not in ("id", "birth", "revision")]
    return type(change).__name__, *[(name, getattr(change, name)) for name in shared]


def listed(definitions: Definitions) -> list[tuple[object, ...]]:
    """What is defined, by kind, in order."""
    changes: list[Change] = [
        *definitions.vhosts, *definitions.users, *definitions.permissions, *definitions.topic_permissions,
        *definitions.parameters, *definitions.exchanges, *definitions.queues, *definitions.bindings,
    ]  # fmt: skip
    return [attributes(change) for change in changes]


def expected(*changes: Change) -> list[tuple[object, ...]]:
    return [attributes(change) for change in changes]


def test_definitions_come_back_in_the_order_of_first_writing(open_store: Open) -> None:
    """Definitions of every kind, with any bytes, come back; a rewritten one keeps its place."""
    metadata = open_store()
    assert listed(metadata.load()) == []
    for change in EVERYTHING:
        metadata.apply([change])
    metadata.apply([])
    assert listed(metadata.load()) == expected(*EVERYTHING)
    metadata.apply(EVERYTHING[:1])
    assert listed(metadata.load()) == expected(*EVERYTHING)
    assert listed(open_store().load()) == expected(*EVERYTHING)


def test_definitions_of_one_set_are_all_there(open_store: Open) -> None:
    metadata = open_store()
    metadata.apply(EVERYTHING)
    assert sorted(map(repr, listed(metadata.load()))) == sorted(map(repr, expected(*EVERYTHING)))


def test_many_definitions_are_stored_by_one_apply(open_store: Open) -> None:
    queues: list[Change] = [
        PutQueue(b"/", number + 1, b"q%03d" % number, True, False, b"") for number in range(300)
    ]
    metadata = open_store()
    metadata.apply(queues)
    assert listed(metadata.load()) == expected(*queues)
    metadata.apply([DeleteQueue(b"/", number + 1, b"q%03d" % number) for number in range(299)])
    assert listed(metadata.load()) == expected(queues[-1])


@pytest.mark.parametrize(
    "change",
    [
        PutVhost(b"/", 1, "new", [], "", True),
        PutUser(b"guest", b"new", "h", []),
        PutPermission(b"/", b"guest", "c", "w", "r"),
        PutTopicPermission(b"/", b"guest", ODD, "new", "n"),
        PutParameter(b"/", "policy", "p/1", "{}"),
        PutParameter(b"", "", "global", "18"),
        PutExchange(b"/", b"x", b"fanout", True, True, ODD),
        PutQueue(b"/", 2, b"q", True, False, ODD),
        PutBinding(b"/", b"amq.topic", b"r", True, b"k", ODD),
    ],
    ids=lambda change: type(change).__name__,
)
def test_put_replaces_what_has_the_same_name(open_store: Open, change: Change) -> None:
    """Everything else stays as it was, in its order."""
    metadata = open_store()
    for written in EVERYTHING:
        metadata.apply([written])
    before = listed(metadata.load())
    metadata.apply([change])
    after = listed(metadata.load())
    assert attributes(change) in after
    assert len(after) == len(before)
    replaced = after.index(attributes(change))
    assert after[:replaced] == before[:replaced]
    assert after[replaced + 1 :] == before[replaced + 1 :]


@pytest.mark.parametrize(
    ("deletion", "gone"),
    [
        (DeletePermission(b"/", b"guest"), [4]),
        (DeleteTopicPermission(b"/", b"guest", ODD), [6]),
        (DeleteParameter(b"/", "policy", "p/1"), [7]),
        (DeleteParameter(b"", "", "global"), [9]),
        (DeleteExchange(b"/", b"x"), [11]),
        (DeleteQueue(b"/", 1, ODD), [12]),
        (DeleteBinding(b"/", b"amq.topic", b"r", True, b"k", ODD), [15]),
        (DeleteUser(b"guest"), [2, 4, 6]),
        (DeleteVhost(ODD), [1, 5]),
        (DeleteVhost(b"/"), [0, 4, 6, 7, 8, 10, 11, 12, 13, 14, 15, 16]),
    ],
    ids=lambda case: type(case).__name__ if isinstance(case, Change) else "",
)
def test_deletion_removes_one_definition_with_its_dependents(
    open_store: Open, deletion: Change, gone: list[int]
) -> None:
    """A vhost goes with what is in it, a user with its permissions; the second time is no error."""
    metadata = open_store()
    for change in EVERYTHING:
        metadata.apply([change])
    left = [change for number, change in enumerate(EVERYTHING) if number not in gone]
    for _ in range(2):
        metadata.apply([deletion])
        assert listed(metadata.load()) == expected(*left)


@pytest.mark.parametrize(
    "deletion",
    [
        DeleteVhost(b"none"),
        DeleteUser(b"none"),
        DeletePermission(ODD, b"guest"),
        DeleteTopicPermission(b"/", b"guest", b"none"),
        DeleteParameter(b"/", "policy", "none"),
        DeleteExchange(ODD, b"x"),
        DeleteQueue(b"/", 99, b"none"),
        DeleteBinding(b"/", b"amq.topic", b"r", True, b"none", ODD),
        DeleteBinding(b"/", b"amq.topic", b"r", False, b"k", ODD),
    ],
    ids=lambda change: type(change).__name__,
)
def test_deletion_of_what_is_not_there_changes_nothing(open_store: Open, deletion: Change) -> None:
    metadata = open_store()
    metadata.apply(EVERYTHING)
    before = listed(metadata.load())
    metadata.apply([deletion])
    assert listed(metadata.load()) == before


def test_vhost_is_deleted_without_those_whose_names_begin_as_its_own(open_store: Open) -> None:
    metadata = open_store()
    changes: list[Change] = [
        PutVhost(b"v", 1), PutVhost(b"vv", 2), PutVhost(b"v/", 3),
        PutQueue(b"v", 1, b"q", True, False, b""),
    ]  # fmt: skip
    left: list[Change] = [
        PutVhost(b"vv", 2), PutVhost(b"v/", 3),
        PutQueue(b"vv", 2, b"q", True, False, b""), PutQueue(b"v/", 3, b"q", True, False, b""),
    ]  # fmt: skip
    for change in [*changes, *left[2:]]:
        metadata.apply([change])
    metadata.apply([DeleteVhost(b"v")])
    assert listed(metadata.load()) == expected(*left)


def test_user_that_is_made_again_has_no_permissions_of_its_earlier_life(open_store: Open) -> None:
    metadata = open_store()
    user = PutUser(b"u", b"h", "", [])
    for vhost in (b"v", b"w"):
        metadata.apply([PutVhost(vhost, vhost[0])])
        metadata.apply([user, PutPermission(vhost, b"u", "", "", "")])
        metadata.apply([PutTopicPermission(vhost, b"u", b"amq.topic", "", "")])
    assert len(metadata.load().permissions) == len(metadata.load().topic_permissions) == 2
    metadata.apply([DeleteUser(b"u")])
    metadata.apply([user])
    assert listed(metadata.load()) == expected(PutVhost(b"v", 1), PutVhost(b"w", 2), user)
    metadata.apply([PutPermission(b"w", b"u", "c", "", "")])
    assert [found.configure for found in metadata.load().permissions] == ["c"]


def test_changes_of_one_set_follow_each_other(open_store: Open) -> None:
    """What a set writes may be replaced and deleted by the same set."""
    metadata = open_store()
    metadata.apply(
        [
            PutUser(b"u", b"first", "", []),
            PutUser(b"u", b"last", "", []),
            PutUser(b"left", b"h", "", []),
            PutVhost(b"gone", 1),
            PutPermission(b"gone", b"u", "", "", ""),
            PutPermission(b"/", b"left", "", "", ""),
            PutQueue(b"gone", 1, b"q", True, False, b""),
            PutExchange(b"/", b"x", b"fanout", False, False, b""),
            DeleteExchange(b"/", b"x"),
            DeleteVhost(b"gone"),
            DeleteUser(b"left"),
        ]
    )
    assert listed(metadata.load()) == expected(PutUser(b"u", b"last", "", []))


def test_set_with_a_change_that_cannot_be_stored_leaves_none(open_store: Open) -> None:
    metadata = open_store()
    metadata.apply([PutVhost(b"/", 1)])
    with pytest.raises(TypeError, match="Change is no change"):
        metadata.apply([PutVhost(b"other", 2), DeleteVhost(b"/"), Change(), PutVhost(b"third", 3)])
    assert listed(metadata.load()) == expected(PutVhost(b"/", 1))
    metadata.apply([PutVhost(b"other", 2)])
    assert len(metadata.load().vhosts) == 2


def test_changes_are_applied_by_another_thread(open_store: Open) -> None:
    """The loop's thread may load, and a thread that waits for the disk or for etcd apply."""
    metadata = open_store()
    metadata.load()
    thread = threading.Thread(target=metadata.apply, args=([PutVhost(b"/", 1)],))
    thread.start()
    thread.join()
    assert listed(metadata.load()) == expected(PutVhost(b"/", 1))
