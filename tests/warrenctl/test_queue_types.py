"""Listings of queues of several types, and of their consumers, as RabbitMQ 3.10.8 printed them."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from tests.support.brokers.process import BrokerProcess
from warrenmq.admin.client.control_file import read_control_file
from warrenmq.cli.control import main

_SINGLE: Final = {"x-single-active-consumer": True}
_QUORUM: Final = {"x-queue-type": "quorum"}
QUEUES: Final = {
    "one": _SINGLE,
    "held": {**_QUORUM, "x-delivery-limit": 2},
    "held one": _QUORUM | _SINGLE,
    "plain": {},
    "levels": {"x-max-priority": 3},
}
# Both match a queue called `held`. The first one applies to quorum queues only, the second one to
# all others only.
POLICIES: Final = {
    "limit": ("^held", '{"delivery-limit":5,"max-length":10}'),
    "lazy": ("^", '{"queue-mode":"lazy"}'),
}
QUEUE_COLUMNS: Final = (
    "name", "type", "durable", "auto_delete", "exclusive", "arguments", "policy", "state",
    "owner_pid", "exclusive_consumer_tag", "slave_pids", "leader", "online", "members",
)  # fmt: skip
LISTED_QUEUES: Final = """\
held\tquorum\ttrue\tfalse\t\t[{"x-queue-type","quorum"},{"x-delivery-limit",2}]\tlimit\trunning\t\t\t\tNODE\t[NODE]\t[NODE]
held one\tquorum\ttrue\tfalse\t\t[{"x-queue-type","quorum"},{"x-single-active-consumer",true}]\tlimit\trunning\t\t\t\tNODE\t[NODE]\t[NODE]
levels\tclassic\ttrue\tfalse\tfalse\t[{"x-max-priority",3}]\tlazy\trunning\t\t\t\t\t\t
one\tclassic\ttrue\tfalse\tfalse\t[{"x-single-active-consumer",true}]\tlazy\trunning\t\t\t\t\t\t
plain\tclassic\ttrue\tfalse\tfalse\t[]\tlazy\trunning\t\tp\t\t\t\t
"""
CONSUMER_COLUMNS: Final = (
    "queue_name", "consumer_tag", "ack_required", "active", "activity_status", "arguments",
)  # fmt: skip
LISTED_CONSUMERS: Final = """\
held\th\ttrue\ttrue\tup\t[]
held one\theld one-a\ttrue\ttrue\tsingle_active\t[]
held one\theld one-b\ttrue\tfalse\twaiting\t[]
held one\theld one-c\ttrue\tfalse\twaiting\t[{"x-priority",4}]
one\tone-a\ttrue\ttrue\tsingle_active\t[]
one\tone-b\ttrue\tfalse\twaiting\t[]
one\tone-c\ttrue\tfalse\twaiting\t[{"x-priority",4}]
plain\tp\ttrue\ttrue\tup\t[]
"""
# When the active consumers have cancelled: RabbitMQ's quorum queues take the oldest one, and its
# classic queues the one of the highest priority.
AFTER_CANCEL: Final = """\
held\th\ttrue\tup
held one\theld one-b\ttrue\tsingle_active
held one\theld one-c\tfalse\twaiting
one\tone-b\tfalse\twaiting
one\tone-c\ttrue\tsingle_active
plain\tp\ttrue\tup
"""


@pytest.fixture(scope="module")
def channel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BlockingChannel]:
    """A channel with consumers of all `QUEUES`; the commands find its node."""
    process = BrokerProcess(tmp_path_factory.mktemp("types"))
    process.start()
    parameters = pika.ConnectionParameters("127.0.0.1", process.port, heartbeat=0)
    try:
        with pytest.MonkeyPatch.context() as patch, pika.BlockingConnection(parameters) as link:
            patch.setenv("WARREN_DATA_DIR", str(process.directory / "data"))
            channel = link.channel()
            for name, arguments in QUEUES.items():
                channel.queue_declare(name, durable=True, arguments=arguments)
            for name in ("one", "held one"):
                for tag, priority in (("a", 0), ("b", 0), ("c", 4)):
                    channel.basic_consume(
                        name,
                        lambda *_: None,
                        consumer_tag=f"{name}-{tag}",
                        arguments={"x-priority": priority} if priority else None,
                    )
            channel.basic_consume("held", lambda *_: None, consumer_tag="h")
            channel.basic_consume("plain", lambda *_: None, consumer_tag="p", exclusive=True)
            yield channel
    finally:
        process.stop()


def listed(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """The rows of a listing, in order of names."""
    capsys.readouterr()
    assert main(["-s", *words]) == 0
    return "".join(sorted(capsys.readouterr().out.splitlines(keepends=True)))


def test_queues(channel: BlockingChannel, capsys: pytest.CaptureFixture[str]) -> None:
    node = read_control_file(Path(os.environ["WARREN_DATA_DIR"])).node
    for name, (pattern, definition) in POLICIES.items():
        assert main(["-q", "set_policy", name, pattern, definition, "--apply-to", "queues"]) == 0
    found = listed(capsys, "list_queues", *QUEUE_COLUMNS)
    assert found.replace(node, "NODE") == LISTED_QUEUES


def test_consumers(channel: BlockingChannel, capsys: pytest.CaptureFixture[str]) -> None:
    assert listed(capsys, "list_consumers", *CONSUMER_COLUMNS) == LISTED_CONSUMERS
    channel.basic_cancel("one-a")
    channel.basic_cancel("held one-a")
    columns = ("queue_name", "consumer_tag", "active", "activity_status")
    assert listed(capsys, "list_consumers", *columns) == AFTER_CANCEL
