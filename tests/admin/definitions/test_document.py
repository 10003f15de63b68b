"""Tests the parser of definitions: both exporters' shapes, what is left out, refused data."""

from itertools import pairwise

import pytest

from warrenmq.admin.definitions.document import (
    SLICE_ROWS,
    DefinitionsError,
    Document,
    pairs,
    parse_document,
    parse_steps,
    tag_list,
)

EXPORT = b"""{
  "rabbit_version": "3.10.8",
  "users": [{"name": "guest", "tags": "administrator, other", "limits": [["max-channels", 5]]}],
  "vhosts": [{"name": "/", "limits": []}],
  "policies": [{"vhost": "/", "name": "p", "pattern": "a", "apply-to": "queues", "definition": [["expires", 5]]}],
  "queues": [{"name": "q", "vhost": "/", "durable": true, "auto_delete": false, "type": "classic",
              "arguments": {"x-max-priority": 3, "none": null}}],
  "exchanges": [{"name": "x", "vhost": "/", "type": "topic", "durable": false, "auto_delete": true, "internal": true,
                 "arguments": {"alternate-exchange": "y"}}],
  "bindings": [{"source": "x", "vhost": "/", "destination": "q", "destination_type": "queue", "routing_key": "a.#",
                "arguments": [], "colour": "red"}],
  "shovels": [1, 2], "empty": [], "note": "by hand"
}"""


def test_an_export() -> None:
    found = parse_document(EXPORT)
    (user,) = found.users
    assert (tag_list(user.tags), pairs(user.limits)) == (
        ["administrator", "other"],
        {"max-channels": 5},
    )
    (policy,) = found.policies
    assert (policy.apply_to, pairs(policy.definition)) == ("queues", {"expires": 5})
    (queue,) = found.queues
    assert (queue.vhost, queue.durable, queue.arguments) == (
        "/",
        True,
        {"x-max-priority": 3, "none": None},
    )
    (exchange,) = found.exchanges
    assert (exchange.durable, exchange.auto_delete, exchange.internal) == (False, True, True)
    assert found.bindings[0].arguments == []
    assert found.version == "3.10.8"
    assert found.left_out == ["the key colour of 1 bindings", "2 shovels", "note"]


def test_an_export_of_one_vhost_has_no_vhosts() -> None:
    found = parse_document(b'{"queues": [{"name": "q"}], "users": null}')
    assert (found.vhosts, found.users, found.queues[0].vhost) == ([], [], "")


def test_steps_are_short() -> None:
    rows = b",".join(b'{"name": "q%d", "vhost": "/"}' % number for number in range(1000))
    document = Document()
    counts = [len(document.queues) for _ in parse_steps(b'{"queues": [' + rows + b"]}", document)]
    assert max(after - before for before, after in pairwise(counts)) == SLICE_ROWS
    assert len(document.queues) == 1000


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"{", "line 1, column 2: expected a name in quotes or }, got the end"),
        (b"[]", "no JSON object"),
        (b"\xff", "line 1, column 1: not UTF-8 text"),
        (b'{"a": ' * 5000, "too many values inside one another"),
        (b'{"queues": 1}', "queues: "),
        (b'{"queues": [1]}', r"queues\[0\]: "),
        (b'{"queues": [{"name": "a"}, {"name": 5}]}', r"queues\[1\]: .*name"),
        (b'{"bindings": [{"source": "a"}]}', r"bindings\[0\]: .*destination"),
        # Tools that edit exports leave nulls, which count as missing.
        (b'{"users": [{"name": null}]}', r"users\[0\]: .*name"),
    ],
)
def test_what_is_no_export(data: bytes, reason: str) -> None:
    with pytest.raises(DefinitionsError, match=reason):
        parse_document(data)
