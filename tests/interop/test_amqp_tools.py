"""The unmodified command-line tools of rabbitmq-c (Debian's amqp-tools) work."""

import shutil
import subprocess

import pytest

from tests.support.awaiting import PATIENCE_S, eventually

pytestmark = pytest.mark.interop


class Tools:
    """Runs the tools against one broker."""

    def __init__(self, uri: str) -> None:
        self.uri = uri

    def run(
        self, tool: str, *arguments: str, stdin: str = "", check: bool = True
    ) -> "subprocess.CompletedProcess[str]":
        done = subprocess.run(
            [tool, "--url", self.uri, *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
        )
        if check:
            assert done.returncode == 0, done.stderr
        return done


@pytest.fixture
def tools(broker_uri: str) -> Tools:
    for tool in (
        "amqp-publish",
        "amqp-consume",
        "amqp-get",
        "amqp-declare-queue",
        "amqp-delete-queue",
    ):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed (Debian package amqp-tools)")
    return Tools(broker_uri)


def test_declare_publish_get_delete(tools: Tools, name: str) -> None:
    assert tools.run("amqp-declare-queue", "--queue", name, "--durable").stdout.strip() == name
    tools.run(
        "amqp-publish", "--routing-key", name, "--persistent", "--content-type", "text/plain", "--header", "a: b",
        "--body", "hello",
    )  # fmt: skip
    assert tools.run("amqp-get", "--queue", name).stdout == "hello"
    # Exit status 2 means an empty queue.
    assert tools.run("amqp-get", "--queue", name, check=False).returncode == 2
    assert tools.run("amqp-delete-queue", "--queue", name).stdout.strip() == "0"


def test_consume_runs_a_command_for_each_message(tools: Tools, name: str) -> None:
    tools.run("amqp-declare-queue", "--queue", name)
    lines = [f"line {number}" for number in range(20)]
    tools.run(
        "amqp-publish",
        "--routing-key",
        name,
        "--line-buffered",
        stdin="".join(line + "\n" for line in lines),
    )
    consumed = tools.run(
        "amqp-consume", "--queue", name, "--count", "20", "--prefetch-count", "5", "cat"
    ).stdout
    assert consumed.split("\n") == [*lines, ""] or consumed == "".join(lines)
    tools.run("amqp-delete-queue", "--queue", name)


def test_a_command_that_fails_leaves_the_message(tools: Tools, name: str) -> None:
    tools.run("amqp-declare-queue", "--queue", name)
    tools.run("amqp-publish", "--routing-key", name, "--body", "stays")
    consumer = subprocess.Popen(
        ["amqp-consume", "--url", tools.uri, "--queue", name, "--count", "1", "false"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        consumer.wait(PATIENCE_S)
    finally:
        consumer.kill()
        consumer.wait()
    found: list[str] = []

    def is_there_again() -> bool:
        got = tools.run("amqp-get", "--queue", name, check=False)
        found.extend([got.stdout] if got.returncode == 0 else [])
        return len(found) > 0

    eventually(is_there_again, "the message back in its queue")
    assert found == ["stays"]
    tools.run("amqp-delete-queue", "--queue", name)


def test_an_exclusive_queue_bound_to_an_exchange(tools: Tools, name: str) -> None:
    consumer = subprocess.Popen(
        ["amqp-consume", "--url", tools.uri, "--exchange", "amq.topic", "--routing-key", f"{name}.*", "--exclusive",
         "--count", "1", "cat"],
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip

    def has_received() -> bool:
        # The tool does not report when its queue is bound, so publish until it ends.
        tools.run(
            "amqp-publish",
            "--exchange",
            "amq.topic",
            "--routing-key",
            f"{name}.x",
            "--body",
            "hello",
        )
        return consumer.poll() is not None

    try:
        eventually(has_received, "a message for the consumer")
        assert consumer.communicate(timeout=PATIENCE_S)[0] == "hello"
    finally:
        consumer.kill()
        consumer.wait()


def test_errors_are_understood(tools: Tools, name: str) -> None:
    failed = tools.run("amqp-get", "--queue", name, check=False)
    assert failed.returncode == 1
    assert f"NOT_FOUND - no queue '{name}' in vhost '/'" in failed.stderr
