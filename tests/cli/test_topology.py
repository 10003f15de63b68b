"""`warren topology` plans and applies a YAML file, and reports what is wrong with it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.brokers.node_thread import NodeThread
from tests.support.command_line import nobody, warren, warren_json

DOCUMENT = """\
exchanges: {e: {type: topic}}
queues: {q: {message_ttl: 1000}}
bindings: [{exchange: e, queue: q, routing_key: k}]
"""


@pytest.fixture
def node(tmp_path: Path) -> Iterator[NodeThread]:
    node = NodeThread(tmp_path)
    yield node
    node.stop()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "topology.yaml"
    file.write_text(DOCUMENT)
    return file


def test_plan_and_apply(node: NodeThread, file: Path) -> None:
    planned = warren("topology", "plan", file, "--uri", node.uri)
    names = ["exchange 'e'", "queue 'q'", "binding of queue 'q' to exchange 'e' with 'k'"]
    assert planned.returncode == 0, planned.stderr
    assert planned.stdout.splitlines() == [f"+ {name} missing" for name in names]
    applied = warren("topology", "apply", file, "--port", node.port)
    assert (applied.returncode, applied.stdout.splitlines()) == (
        0,
        [f"declared {name}" for name in names],
    )
    assert warren_json("topology", "apply", file, "--uri", node.uri) == {
        "vhost": "/",
        "declared": names,
    }
    file.write_text(DOCUMENT.replace("1000", "2000"))
    planned = warren_json("topology", "plan", file, "--uri", node.uri, status=1)
    assert planned["not_compared_because"] == ""
    assert planned["changes"] == [
        {"declaration": names[0], "finding": "equal", "differences": []},
        {
            "declaration": names[1],
            "finding": "differs",
            "differences": [{"name": "message_ttl", "old": 1000, "new": 2000}],
        },
        {"declaration": names[2], "finding": "equal", "differences": []},
    ]
    refused = warren("topology", "apply", file, "--uri", node.uri)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr.startswith(
        "warren: the broker refused queue 'q': 406 PRECONDITION_FAILED"
    )


def test_a_file_that_is_no_topology(file: Path, tmp_path: Path) -> None:
    for text, error in (
        (b"queues: 5", f"{file}, line 1, column 9, queues: expected a mapping of names"),
        (b"\xff", f"{file}: no UTF-8"),
    ):
        file.write_bytes(text)
        done = warren("topology", "plan", file)
        assert (done.returncode, done.stderr) == (2, f"warren: {error}\n")
    done = warren("topology", "apply", tmp_path / "none")
    assert done.stderr == f"warren: {tmp_path / 'none'}: No such file or directory\n"


def test_nobody_answers(file: Path) -> None:
    with nobody() as port:
        for command in ("plan", "apply"):
            done = warren("topology", command, file, "--port", port)
            assert done.returncode == 2
            assert done.stderr.startswith(f"warren: no connection to localhost:{port}: ")
            assert len(done.stderr.splitlines()) == 1
