"""Control operations on a file system without a free byte: refused whole, accepted with room."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.brokers.amqp_peer import ConnectionClosedError
from tests.support.brokers.process import BrokerProcess
from tests.support.kills.ledger import connect
from tests.support.stores.small_disk import SmallDisk, mounted_disk
from warrenmq.admin.client.client import AdminClient, AdminRefusedError, NodeAddress
from warrenmq.admin.client.definitions import import_definitions
from warrenmq.admin.protocol.control import (
    AddUser,
    AddVhost,
    ControlRequest,
    DeleteVhost,
    Done,
    ImportDefinitions,
    List,
    Rows,
    SetPolicy,
)
from warrenmq.vocabulary.error_codes import STORAGE_FAILED
from warrenmq.wire.methods import QueueDeclare, QueueDeclareOk

pytestmark = pytest.mark.kill
# Operations succeed while the definitions have room in their blocks: so many are tried of a kind.
TRIES = 12
POLICY = {"expires": 999999}


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    with mounted_disk(tmp_path / "data") as disk:
        yield disk


@pytest.fixture
def node(tmp_path: Path, disk: SmallDisk) -> Iterator[BrokerProcess]:
    """A node whose data directory is the small disk; only a full disk stops it."""
    process = BrokerProcess(tmp_path, "disk_free_limit.absolute=0")
    yield process
    process.kill()
    log = process.log_path.read_text()
    assert "Traceback" not in log, log[-4000:]


def administrator(node: BrokerProcess) -> AdminClient:
    """A session for control operations."""
    address = NodeAddress(node.uri)
    address.vhost = ""
    return AdminClient(address)


def names(node: BrokerProcess) -> dict[str, set[str]]:
    """The names of everything that the operations concern."""
    with administrator(node) as client:

        def listed(request: List) -> set[str]:
            return {row[0] for row in client.request(request, Rows).rows}

        return {
            "users": listed(List(what="users", columns=["user"])),
            "policies": listed(List(what="policies", columns=["name"], vhost="/")),
            "queues": listed(List(what="queues", columns=["name"], vhost="/")),
            "vhosts": listed(List(what="vhosts", columns=["name"])),
        }


def carry_out(node: BrokerProcess, what: str, number: int) -> None:
    """Add the user, policy or queue `number`, delete the vhost, or import a user and a policy."""
    if what == "queues":
        channel = connect(node).channel()
        channel.send(QueueDeclare(b"q%d" % number, False, True))
        channel.expect(QueueDeclareOk)
        return
    requests: dict[str, ControlRequest] = {
        "users": AddUser(name=f"u{number}", password="p"),
        "policies": SetPolicy(
            vhost="/", name=f"p{number}", pattern="", definition=json.dumps(POLICY)
        ),
        "vhosts": DeleteVhost(name=f"v{number}"),
    }
    with administrator(node) as client:
        if what == "import":
            user = {"name": f"i{number}"}
            policy = {"name": f"i{number}", "vhost": "/", "pattern": "", "definition": POLICY}
            document = json.dumps({"users": [user], "policies": [policy]}).encode()
            import_definitions(client.request, ImportDefinitions(json=document))
        else:
            client.request(requests[what], Done)


def note(state: dict[str, set[str]], what: str, number: int) -> None:
    """Change `state` as the operation does that was accepted."""
    if what == "vhosts":
        state["vhosts"].discard(f"v{number}")
    elif what == "import":
        state["users"].add(f"i{number}")
        state["policies"].add(f"i{number}")
    else:
        state[what].add(f"{what[0]}{number}")


def test_what_has_no_room_is_refused_whole(node: BrokerProcess, disk: SmallDisk) -> None:
    """A refusal says why; nothing of it is there, also after a crash; with room it is accepted."""
    node.start()
    with administrator(node) as client:
        for number in range(TRIES):
            client.request(AddVhost(name=f"v{number}"), Done)
    expected = names(node)
    refused: dict[str, int] = {}
    for what in ("users", "policies", "queues", "vhosts", "import"):
        for number in range(TRIES):
            disk.fill()
            try:
                carry_out(node, what, number)
            except ConnectionClosedError as error:
                assert what == "queues" and str(error).startswith("506 ")
            except AdminRefusedError as error:
                assert error.code == STORAGE_FAILED
                assert "could not store the change; nothing is changed: " in error.text
                assert "database or disk is full" in error.text
            else:
                note(expected, what, number)
                continue
            refused[what] = number
            break
        assert what in refused
        assert names(node) == expected, what
    node.kill()
    disk.fill()
    node.start()
    assert names(node) == expected
    disk.free()
    for what, number in refused.items():
        carry_out(node, what, number)
        note(expected, what, number)
    assert names(node) == expected
    node.kill()
    node.start()
    assert names(node) == expected
