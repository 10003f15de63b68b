"""Sentences of the pages about what is not there, or does nothing: each is tried.

A sentence that is gone from its page fails as well, so that its trial goes with it.
"""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pika
import pytest
from pika.exceptions import ChannelClosedByBroker

from tests.support.brokers.process import BrokerProcess
from tests.support.command_line import warren
from warrenmq.admin.definitions.document import parse_document
from warrenmq.cli.control import main
from warrenmq.cluster.decisions import placement
from warrenmq.pipeline.rabbitmq.imported_definitions import ImportedDefinitions

ROOT: Final = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    process = BrokerProcess(tmp_path_factory.mktemp("node"))
    process.start()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WARREN_DATA_DIR", str(process.directory / "data"))
        yield process
    process.stop()


def expect_sentence(page: str, sentence: str) -> None:
    """The page has the sentence, wherever its lines break."""
    text = " ".join((ROOT / page).read_text("utf-8").split())
    assert sentence in text, f"{page} says no more: {sentence}"


def test_streams(node: BrokerProcess) -> None:
    expect_sentence(
        "docs/queues.md",
        "The type `stream` is refused with 406: `unsupported queue type 'stream'`.",
    )
    with pika.BlockingConnection(pika.URLParameters(node.uri)) as link:
        channel = link.channel()
        with pytest.raises(
            ChannelClosedByBroker, match=r"unsupported queue type .*stream"
        ) as error:
            channel.queue_declare("s", durable=True, arguments={"x-queue-type": "stream"})
        assert error.value.reply_code == 406


def test_keys_of_the_management_interface(tmp_path: Path) -> None:
    expect_sentence(
        "CHANGELOG.md",
        "Streams. They are refused; keys of RabbitMQ's configuration that wait are named in a warning.",
    )
    file = tmp_path / "rabbitmq.conf"
    file.write_text("management.tcp.port = 15672\nmanagement.disable_basic_auth = true\n")
    warned = warren("config", "check", file)
    printed = warned.stdout + warned.stderr
    assert warned.returncode == 0, printed
    assert "management.disable_basic_auth" in printed
    assert "management.tcp.port" not in printed


def test_keys_of_policies_that_wait(
    node: BrokerProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    """They are stored and shown; those by which queues are placed act, in a cluster."""
    rows = re.findall(
        r"^\| (`[^|]*) \|[^|\n]*\|[^|\n]*\| ([^|\n]*) \|$",
        (ROOT / "docs/operations/policies.md").read_text("utf-8"),
        re.MULTILINE,
    )
    today = {key: state for keys, state in rows for key in re.findall("`([a-z-]+)`", keys)}
    waiting = {key for key, state in today.items() if state == "waiting"}
    assert waiting == {
        "max-in-memory-length", "max-in-memory-bytes", "federation-upstream",
        "federation-upstream-set", "federation-upstream-pattern",
    }  # fmt: skip
    for key in placement._POLICY_KEYS:
        assert today[key].startswith("acts on new ")
    for definition in ('{"max-in-memory-length":1}', '{"federation-upstream":"up"}'):
        assert main(["-q", "set_policy", "p", "^x", definition]) == 0
        capsys.readouterr()
        assert main(["-s", "list_policies"]) == 0
        assert definition in capsys.readouterr().out


def test_what_an_import_from_rabbitmq_leaves_out() -> None:
    expect_sentence(
        "docs/operations/parquet-backup.md",
        "the type of a stream, arguments that a declaration refuses, exchanges of other types",
    )
    kept = '"x-dead-letter-exchange": "d", "x-max-length": 5, "x-max-priority": 3'
    export = parse_document(
        b"""{"vhosts": [{"name": "v"}],
        "queues": [{"name": "q", "vhost": "v", "durable": true, "auto_delete": false,
                    "arguments": {%s, "x-queue-type": "stream"}}],
        "exchanges": [{"name": "h", "vhost": "v", "type": "x-recent-history", "durable": true,
                       "auto_delete": false, "internal": false, "arguments": {}}]}"""
        % kept.encode()
    )
    found = ImportedDefinitions(export, [], ["v"])
    (queue,) = found.definitions.queues
    for name in ("x-dead-letter-exchange", "x-max-length", "x-max-priority"):
        assert name.encode() in queue.arguments
    assert b"x-queue-type" not in queue.arguments
    assert len(found.left_out) == 2, found.left_out
    assert found.definitions.exchanges == []


def test_most_jobs_can_do_without_java(node: BrokerProcess, tmp_path: Path) -> None:
    text = " ".join(warren("pipeline", "--help").stdout.split())
    assert "most can do without (--engine local)" in text
    stopped = BrokerProcess(tmp_path / "stopped")
    stopped.start()
    assert stopped.stop() == 0
    done = warren(
        "pipeline", "backup", tmp_path / "made", "--data-dir", stopped.directory / "data",
        environment={"PATH": os.devnull, "JAVA_HOME": ""},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "made" / "manifest.json").exists()
