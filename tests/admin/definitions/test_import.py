"""Imports of definitions into a broker in memory: what changes, what is left out or refused."""

import base64
import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.brokers.administered_broker import AdministeredBroker
from warrenmq.admin.definitions.administration import Refusal
from warrenmq.admin.definitions.declaring import Declaring
from warrenmq.admin.definitions.importing import DefinitionsImport
from warrenmq.admin.definitions.new_topology import TopologyPlanning
from warrenmq.admin.protocol.control import (
    IMPORT_CANCELLED,
    IMPORT_COMPARING,
    IMPORT_DECLARING,
    IMPORT_DONE,
    IMPORT_READING,
    IMPORT_STORING,
)
from warrenmq.broker.definitions.passwords import MD5, SHA256, hash_password
from warrenmq.routing.exchange import Binding
from warrenmq.vocabulary.error_codes import (
    INTERNAL,
    INVALID,
    NO_SUCH_USER,
    NO_SUCH_VHOST,
    STORAGE_FAILED,
)
from warrenmq.wire.field_table import Field, encode_table
from warrenmq.wire.field_types import TAG_BYTE, TAG_LONGSTR

GOLDEN = Path(__file__).with_name("golden")
HASH = base64.b64encode(hash_password(b"secret")).decode()


def document(**sections: Any) -> bytes:
    """A document with these sections."""
    return json.dumps(sections).encode()


def queue(name: str, vhost: str = "/", **more: Any) -> dict[str, Any]:
    """The row of a durable queue."""
    return {"name": name, "vhost": vhost, "durable": True, "auto_delete": False} | more


def exchange(name: str, type: str = "direct", **more: Any) -> dict[str, Any]:
    """The row of a durable exchange in the vhost /."""
    return {"name": name, "vhost": "/", "type": type, "durable": True} | more


def binding(source: str, destination: str, key: str = "k", **more: Any) -> dict[str, Any]:
    """The row of a binding in the vhost /."""
    row = {"source": source, "vhost": "/", "destination": destination, "routing_key": key}
    return row | {"destination_type": "queue", "arguments": {}} | more


def permission(user: str = "guest", vhost: str = "/", configure: str = ".*") -> dict[str, str]:
    """The row of permissions."""
    return {"user": user, "vhost": vhost, "configure": configure, "write": "", "read": ""}


def policy(definition: Any, vhost: str = "/") -> dict[str, Any]:
    """The row of a policy."""
    return {"vhost": vhost, "name": "p", "pattern": "^a", "definition": definition}


# -- both exporters --------------------------------------------------------------------------------


def rows_of(exported: Any, section: str) -> list[str]:
    """The rows of a section in an order of their own, as comparable texts."""
    return sorted(json.dumps(row, sort_keys=True) for row in exported[section])


def as_management_exports(golden: Any) -> Any:
    """An export of rabbitmqctl without what only rabbitmqctl writes, or forgets."""
    for row in golden["vhosts"]:
        del row["limits"]
    for row in golden["queues"]:
        del row["type"]
    for row in golden["exchanges"]:
        row["internal"] = False
    for row in golden["parameters"]:
        if row["component"] == "operator_policy":
            row["value"]["definition"] = dict(row["value"]["definition"])
    # rabbitmqctl writes bindings of internal exchanges and exclusive queues, but not these.
    ends = {row["name"] for row in (*golden["queues"], *golden["exchanges"])} | {"amq.fanout"}
    golden["bindings"] = [row for row in golden["bindings"] if row["destination"] in ends]
    return golden


@pytest.mark.parametrize("exporter", ["management", "rabbitmqctl"])
def test_what_rabbitmq_exported_is_exported_again(exporter: str) -> None:
    data = (GOLDEN / f"{exporter}.json").read_bytes()
    node = AdministeredBroker()
    planned = node.imported(data, is_dry_run=True)
    done = node.imported(data)
    assert (done.changes, done.left_out) == (planned.changes, planned.left_out)
    assert node.imported(data).changes == []
    golden, found = json.loads(data), json.loads(node.exported())
    if exporter == "rabbitmqctl":
        golden = as_management_exports(golden)
    else:
        for row in found["vhosts"]:
            del row["metadata"]
    found["users"] = [row for row in found["users"] if row["name"] not in ("actor", "outsider")]
    found["permissions"] = [row for row in found["permissions"] if row["user"] != "actor"]
    for section in golden.keys() - {
        "rabbit_version",
        "rabbitmq_version",
        "product_name",
        "product_version",
    }:
        assert rows_of(found, section) == rows_of(golden, section), section


def test_keys_are_in_the_order_of_the_management_plug_in() -> None:
    data = (GOLDEN / "management.json").read_bytes()
    node = AdministeredBroker()
    node.imported(data)
    golden, found = json.loads(data), json.loads(node.exported())
    assert list(found) == list(golden)
    for section, rows in golden.items():
        if isinstance(rows, list) and section != "vhosts":
            assert list(found[section][0]) == list(rows[0]), section
    of_vhost = json.loads(node.exported("téam".encode()))
    assert list(of_vhost) == [
        "rabbit_version",
        "parameters",
        "policies",
        "queues",
        "exchanges",
        "bindings",
    ]
    assert "vhost" not in of_vhost["queues"][0] | of_vhost["bindings"][0]


def test_an_export_of_one_vhost_is_imported_into_another() -> None:
    node = AdministeredBroker()
    node.imported((GOLDEN / "management.json").read_bytes())
    of_vhost = node.exported("téam".encode())
    done = node.imported(of_vhost, "empty")
    assert done.left_out == [] and "create queue 'q.types' in vhost 'empty'" in done.changes
    again = json.loads(node.exported(b"empty"))
    parameters = json.loads(of_vhost)
    for row in (*parameters["parameters"], *parameters["policies"]):
        row["vhost"] = "empty"
    assert again == parameters


# -- what changes ----------------------------------------------------------------------------------


def test_changes_are_told_with_both_values() -> None:
    node = AdministeredBroker()
    node.imported(
        document(
            vhosts=[{"name": "v", "description": "old", "tags": "a,b"}],
            users=[{"name": "ann", "password_hash": HASH, "tags": "x", "limits": {}}],
            permissions=[permission("ann")],
            policies=[policy({"expires": 5}, "v")],
        )
    )
    done = node.imported(
        document(
            # As in RabbitMQ, new metadata replaces all of the old.
            vhosts=[{"name": "v", "metadata": {"description": "new"}}, {"name": "/"}],
            users=[{"name": "ann", "tags": [], "limits": [["max-channels", 5]]}],
            permissions=[permission("ann", configure="^a")],
            policies=[policy([["expires", 6]], "v")],
        )
    )
    assert done.changes == [
        """change user 'ann': tags: ["x"] -> [], max-channels: -1 -> 5""",
        """change vhost 'v': description: "old" -> "new", tags: ["a", "b"] -> []""",
        """change permissions of user 'ann' in vhost '/': configure: ".*" -> "^a\"""",
        """change policy 'p' in vhost 'v': definition: {"expires": 5} -> {"expires": 6}""",
    ]
    assert node.broker.access.is_password(b"ann", b"secret")


def test_passwords() -> None:
    """A plain password is hashed once; a hash without its algorithm is as old as its exporter."""
    node = AdministeredBroker()
    plain = document(users=[{"name": "ann", "password": "secret", "tags": ""}])
    assert node.imported(plain).changes == ["create user 'ann'"]
    assert node.imported(plain).changes == []
    assert node.broker.access.is_password(b"ann", b"secret")
    old_hash = base64.b64encode(hash_password(b"secret", MD5)).decode()
    old = [{"name": "old", "password_hash": old_hash, "tags": ""}]
    node.imported(document(rabbit_version="3.5.7", users=old))
    new = [{"name": "new", "password_hash": HASH}, {"name": "none"}, {"name": "empty"}]
    node.imported(document(rabbit_version="3.6.0", users=new))
    users = node.broker.access.users
    assert [users[name].hashing for name in (b"old", b"new")] == [MD5, SHA256]
    assert node.broker.access.is_password(b"old", b"secret")
    assert users[b"none"].password_hash == b""


def test_existing_topology_stays_as_it_is() -> None:
    node = AdministeredBroker()
    first = document(
        exchanges=[exchange("x", "topic")], queues=[queue("q", arguments={"x-expires": 5})]
    )
    node.imported(first)
    other = document(
        exchanges=[exchange("x", "fanout"), exchange("amq.direct", "fanout")],
        queues=[queue("q", durable=False)],
    )
    assert node.imported(other).changes == []
    assert [json.loads(node.exported())[key] for key in ("queues", "exchanges")] == [
        [queue("q", arguments={"x-expires": 5})],
        [exchange("x", "topic", auto_delete=False, internal=False, arguments={})],
    ]


def test_bindings_that_look_equal_in_json_are_one() -> None:
    """Clients choose types of numbers that JSON does not show."""
    node = AdministeredBroker()
    node.imported(document(queues=[queue("q")]))
    vhost = node.memory.vhost
    arguments = {"x-match": Field(TAG_LONGSTR, b"all"), "n": Field(TAG_BYTE, 5)}
    source = vhost.router.exchanges[b"amq.headers"]
    made = vhost.router.bind(source, vhost.queues[b"q"], b"", encode_table(arguments))
    assert isinstance(made, Binding)
    assert node.imported(node.exported()).changes == []


def test_a_dry_run_changes_nothing() -> None:
    node = AdministeredBroker()
    before = node.exported()
    data = (GOLDEN / "management.json").read_bytes()
    assert len(node.imported(data, is_dry_run=True).changes) > 50
    assert node.exported() == before and node.stored == []
    assert node.broker.next_vhost_id() == 2


def test_transient_topology_is_declared_but_not_stored() -> None:
    node = AdministeredBroker()
    rows = document(
        queues=[queue("q", durable=False, auto_delete=True)],
        exchanges=[exchange("x", "fanout", durable=False)],
        bindings=[binding("x", "q")],
    )
    assert len(node.imported(rows).changes) == 3
    router = node.memory.vhost.router
    found = router.route(router.exchanges[b"x"], [b""], b"")
    assert [each.name for each in found] == [b"q"] and not found[0].durable
    assert node.memory.vhost.unstored == {}


# -- what is left out ------------------------------------------------------------------------------


def test_what_has_no_place_is_left_out_and_told() -> None:
    node = AdministeredBroker()
    done = node.imported(
        document(
            shovels=[1, 2],
            users=[{"name": "ann", "colour": 5}],
            exchanges=[exchange("old", "x-recent-history"), exchange("amq.mine"), exchange("x")],
            queues=[
                queue(
                    "q", arguments={"x-max-length": -5, "x-expires": 50, "x-queue-type": "stream"}
                )
            ],
            bindings=[
                binding("old", "q"),
                binding("x", "gone"),
                binding("", "q"),
                binding("amq.headers", "q", arguments={"x-match": "most"}),
                binding("x", "q", arguments={"n": 1 << 70}),
            ],
        )
    )
    assert done.changes == [
        "create user 'ann'",
        "create exchange 'x' in vhost '/'",
        "create queue 'q' in vhost '/'",
        "create binding of queue 'q' to exchange 'x' with key 'k' in vhost '/'",
    ]
    assert done.left_out[:5] == [
        "the key colour of 1 users",
        "2 shovels",
        "exchange 'old' in vhost '/': unknown exchange type 'x-recent-history'",
        "exchange 'amq.mine' in vhost '/': the name is reserved",
        "argument x-max-length of queue 'q' in vhost '/': {value_negative,-5}",
    ]
    assert len(done.left_out) == 11, done.left_out
    (found,) = json.loads(node.exported())["queues"]
    assert found["arguments"] == {"x-expires": 50}


def test_exchange_types_with_arguments() -> None:
    """Types with arguments of their own come back as they were; wrong ones are left out."""
    node = AdministeredBroker()
    delayed = {"x-delayed-type": "x-consistent-hash", "hash-property": "message_id"}
    good = [
        exchange("by-header", "x-consistent-hash", arguments={"hash-header": "h"}),
        exchange("chance", "x-random"),
        exchange("later", "x-delayed-message", arguments=delayed),
    ]
    bad = [
        exchange("b1", "x-consistent-hash", arguments={"hash-property": "app_id"}),
        exchange("b2", "x-delayed-message"),
        exchange("b3", "x-delayed-message", arguments={"x-delayed-type": "other"}),
    ]
    bindings = [binding("by-header", "q", "5"), binding("later", "q", "0")]
    done = node.imported(document(exchanges=[*good, *bad], queues=[queue("q")], bindings=bindings))
    assert done.left_out == [
        "exchange 'b1' in vhost '/': Unsupported property: app_id",
        "exchange 'b2' in vhost '/': Invalid argument, 'x-delayed-type' must be an existing exchange type",
        "exchange 'b3' in vhost '/': unknown exchange type 'other'",
        "binding of queue 'q' to exchange 'later' with key '0' in vhost '/': PRECONDITION_FAILED - The binding key must be greater than 0",
    ]
    exported = json.loads(node.exported())
    plain = {"auto_delete": False, "internal": False, "arguments": {}}
    assert exported["exchanges"] == [plain | each for each in good]
    assert [each["source"] for each in exported["bindings"]] == ["by-header"]


# -- what is refused -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sections", "code", "text"),
    [
        (
            {"queues": [queue("q2", "no")]},
            NO_SUCH_VHOST,
            'queues[1]: Virtual host "no" does not exist',
        ),
        (
            {"policies": [policy({"expires": 5}, "no")]},
            NO_SUCH_VHOST,
            'policies[0]: Virtual host "no" does not exist',
        ),
        (
            {"permissions": [permission("no")]},
            NO_SUCH_USER,
            'permissions[0]: User "no" does not exist',
        ),
        (
            {"permissions": [permission(configure="(")]},
            INVALID,
            "invalid regular expression '(' for configure: missing ) at position 1",
        ),
        (
            {"permissions": [permission(configure="a(?R)?")]},
            INVALID,
            "for configure: not supported: ",
        ),
        ({"users": [{"name": "u", "password_hash": "!"}]}, INVALID, "not base64"),
        ({"users": [{"name": "u", "password_hash": "AQID"}]}, INVALID, "has 3 bytes"),
        (
            {"users": [{"name": "u", "password_hash": HASH, "hashing_algorithm": "rot13"}]},
            INVALID,
            "unknown hashing algorithm 'rot13'",
        ),
        ({"users": [{"name": "u", "limits": {"max-queues": 5}}]}, INVALID, "'max-queues'"),
        ({"users": [{"name": ""}]}, INVALID, "users[0]: user name cannot be empty"),
        ({"policies": [policy({"nonsense": 1})]}, INVALID, "not recognised policy settings"),
        (
            {
                "parameters": [
                    {
                        "vhost": "/",
                        "component": "vhost-limits",
                        "name": "limits",
                        "value": {"max-queues": "x"},
                    }
                ]
            },
            INVALID,
            "max-queues should be a number",
        ),
        ({"queues": [queue("q" * 256)]}, INVALID, "is too long: 256 bytes"),
        ({"queues": [{"name": "q2"}]}, INVALID, "queues[1]: queue 'q2' names no vhost"),
        (
            {"bindings": [binding("amq.direct", "q2", destination_type="user")]},
            INVALID,
            "unknown destination type 'user'",
        ),
        ({"queues": [{"vhost": "/"}]}, INVALID, "queues[1]: "),
    ],
)
def test_one_invalid_row_leaves_everything_as_it_is(
    sections: dict[str, Any], code: str, text: str
) -> None:
    node = AdministeredBroker()
    before = node.exported()
    good = {"vhosts": [{"name": "new"}], "queues": [queue("q1")]}
    rows = {key: good.get(key, []) + sections.get(key, []) for key in good | sections}
    outcome = node.import_definitions(document(**rows))
    assert isinstance(outcome, Refusal) and outcome.code == code and text in outcome.text
    assert node.exported() == before


def test_an_unknown_vhost_is_refused() -> None:
    outcome = AdministeredBroker().import_definitions(b"{}", "no")
    assert isinstance(outcome, Refusal) and outcome.code == NO_SUCH_VHOST


def test_a_vhost_gets_no_more_queues_than_it_may_have() -> None:
    node = AdministeredBroker()
    limits = {
        "vhost": "/",
        "component": "vhost-limits",
        "name": "limits",
        "value": {"max-queues": 2},
    }
    node.imported(document(parameters=[limits], queues=[queue("a"), queue("b")]))
    before = node.exported()
    node.imported(document(queues=[queue("a"), queue("b")]))
    outcome = node.import_definitions(document(users=[{"name": "u"}], queues=[queue("c")]))
    # RabbitMQ's text.
    assert isinstance(outcome, Refusal) and outcome.text == (
        'Adding 1 queue(s) to virtual host "/" would exceed the limit of 2 queue(s).\n\n'
        "This virtual host currently has 2 queue(s) defined.\n\nImport aborted!"
    )
    assert node.exported() == before


def test_what_cannot_be_stored_is_taken_back_and_can_be_repeated() -> None:
    node = AdministeredBroker()
    before = node.exported()
    rows = document(
        exchanges=[exchange("x")],
        queues=[queue(f"q{number}") for number in range(300)],
        bindings=[binding("x", "q1"), binding("amq.fanout", "x", destination_type="exchange")],
    )
    node.memory.failing_commits = 1
    outcome = node.import_definitions(rows)
    assert isinstance(outcome, Refusal) and outcome.code == STORAGE_FAILED
    node.pump()
    assert node.exported() == before
    assert len(node.imported(rows).changes) == 303
    node.failure = "no space"
    outcome = node.import_definitions(document(users=[{"name": "ann"}], queues=[queue("new")]))
    assert isinstance(outcome, Refusal) and "no space" in outcome.text
    assert b"new" not in node.memory.vhost.queues


@pytest.mark.parametrize("broken", [TopologyPlanning, Declaring])
def test_a_fault_of_the_broker_ends_the_import(
    broken: type, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A bug between the slices is logged, and the client does not wait for ever."""
    monkeypatch.setattr(broken, "__init__", None)
    outcome = AdministeredBroker().import_definitions(document(queues=[queue("q")]))
    assert isinstance(outcome, Refusal) and outcome.code == INTERNAL
    assert "internal error" in caplog.text


def test_an_import_is_cancelled_before_anything_is_stored_or_not_at_all() -> None:
    """Cancelled in any of its turns, an import changes nothing, or all if it was being stored."""
    rows = document(
        users=[{"name": "ann", "tags": []}],
        vhosts=[{"name": "new"}],
        queues=[queue(f"q{number}") for number in range(300)] + [queue("q", "new")],
        bindings=[binding("amq.direct", f"q{number}") for number in range(300)],
    )
    whole = AdministeredBroker()
    whole.imported(rows)
    steps = set()
    for turns in itertools.count():
        node = AdministeredBroker()
        before = node.exported()
        running = DefinitionsImport(node.broker, node.administration, node, None)
        running.start(rows, False)
        for _ in range(turns):
            node.turn()
        step = running.status().step
        steps.add(step)
        running.cancel()
        while running.is_running() or node.turns:
            node.turn()
        if step in (IMPORT_READING, IMPORT_COMPARING):
            assert running.status().step == IMPORT_CANCELLED and node.exported() == before
        else:
            assert running.status().step == IMPORT_DONE and node.exported() == whole.exported()
        if step == IMPORT_DONE:
            break
    assert steps == {
        IMPORT_READING,
        IMPORT_COMPARING,
        IMPORT_STORING,
        IMPORT_DECLARING,
        IMPORT_DONE,
    }
