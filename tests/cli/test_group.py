"""`warren group` lists, shows and deletes reader groups, and reports failures in one line."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.brokers.amqp_frames import PERSISTENT
from tests.support.brokers.node_thread import NodeThread
from tests.support.command_line import nobody, warren, warren_json
from warrenmq.admin.client.client import AdminClient, NodeAddress
from warrenmq.admin.protocol.requests import GroupOpened, OpenGroup, Reserve, Reserved


@pytest.fixture
def node(tmp_path: Path) -> Iterator[NodeThread]:
    """A node with two groups: `orders` of two queues by pattern, and `other` of one queue.

    The group `orders` has reserved two messages of its first queue, and none of its second.
    """
    node = NodeThread(tmp_path)
    channel = node.peer().open().channel()
    channel.confirm_select()
    for queue, count in ((b"orders.a", 3), (b"orders.b", 2), (b"other", 0)):
        channel.declare(queue, durable=True)
        for _ in range(count):
            channel.publish(queue, b"x", PERSISTENT)
    channel.confirms(5)
    with AdminClient(NodeAddress(f"amqp://127.0.0.1:{node.port}"), "a test") as client:
        group = client.request(OpenGroup("orders", pattern=r"orders\..*"), GroupOpened)
        first = group.members[0].incarnation
        client.request(Reserve("orders", group.epoch, {}, 2, 1000, until={first: 3}), Reserved)
        client.request(OpenGroup("other", [b"other"]), GroupOpened)
    yield node
    node.stop()


def test_list_show_and_delete(node: NodeThread) -> None:
    at = ("--port", node.port)
    lines = warren("group", "list", *at).stdout.splitlines()
    assert lines[0].split() == ["group", "queues", "held", "lag", "lag", "seconds", "opened", "by"]
    assert lines[1].split()[:5] == ["orders", r"orders\..*", "(2)", "2", "5"]
    assert lines[2].split()[:4] == ["other", "other", "0", "0"]
    found = warren_json("group", "list", *at)
    assert [(group["group"], group["held"], group["lag"]) for group in found["groups"]] == [
        ("orders", 2, 5),
        ("other", 0, 0),
    ]
    shown = warren_json("group", "show", "orders", *at)
    assert (shown["vhost"], shown["pattern"]) == ("/", r"orders\..*")
    first, second = shown["members"]
    assert (first["queue"], first["acked"], first["reserved"], first["held"]) == (
        "orders.a",
        0,
        3,
        2,
    )
    assert (second["queue"], second["held"], second["lag"]) == ("orders.b", 0, 2)
    assert 0 < first["lag_seconds"] < 100
    lines = warren("group", "show", "orders", *at).stdout.splitlines()
    assert f"epoch {shown['epoch']}" in lines[0] and "(a test)" in lines[0] and len(lines) == 5
    assert warren_json("group", "delete", "orders", *at)["deleted"]
    assert [group["group"] for group in warren_json("group", "list", *at)["groups"]] == ["other"]
    queues = {queue["name"]: queue for queue in warren_json("queues", *at)["queues"]}
    assert (queues["orders.a"]["ready"], queues["orders.a"]["groups"]) == (3, [])


@pytest.mark.parametrize("name", ["nope", "", "no/pe é"])
@pytest.mark.parametrize("command", ["show", "delete"])
def test_a_group_that_is_not_there(node: NodeThread, command: str, name: str) -> None:
    """An unknown or impossible group name gives one line and status 1."""
    done = warren("group", command, name, "--port", node.port)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"warren: no reader group '{name}'\n"


def test_no_node_or_no_access(node: NodeThread) -> None:
    with nobody() as port:
        for arguments in (("--port", port), ("--port", node.port, "--password", "wrong")):
            for command in (("list",), ("show", "x"), ("delete", "x")):
                done = warren("group", *command, *arguments)
                assert (done.returncode, done.stdout) == (2, "") and done.stderr.count("\n") == 1
