"""The blocks of docs/clients run, page by page, against a broker that is killed and started again.

Only ports and the name of the authority's file are replaced. What a page says about reconnecting is
tried: its consumer gets a message that was published after the broker was killed, and its publisher
waits for the broker.
"""

import asyncio
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Awaitable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pika
import pytest
from kombu.connection import Connection

from tests.interop.amqplib_installation import node_directory
from tests.support.awaiting import PATIENCE_S, eventually
from tests.support.brokers.tls_process import TlsBroker

__all__ = ["node_directory"]

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.timeout(300)]

PAGES = Path(__file__).parents[2] / "docs" / "clients"
# Debian's packages of the clients for Java and PHP.
JARS = [Path("/usr/share/java") / name for name in ("amqp-client.jar", "slf4j-api.jar")]
PHP_CLIENT = Path("/usr/share/php/PhpAmqpLib/autoload.php")
QUEUES = ("orders.new", "orders.failed", "shop")


class Enough(Exception):
    """Ends a page's consumer, which runs until its handler raises."""


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TlsBroker]:
    broker = TlsBroker(tmp_path_factory.mktemp("broker"))
    broker.start()
    yield broker
    assert broker.stop() == 0


@pytest.fixture
def broker(running: TlsBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TlsBroker:
    """The module's broker, with none of the pages' queues; the test runs in its own directory."""
    with pika.BlockingConnection(pika.URLParameters(running.uri)) as connection:
        for queue in QUEUES:
            connection.channel().queue_delete(queue)
    shutil.copy(running.authority.certfile, tmp_path / "ca.pem")
    monkeypatch.chdir(tmp_path)
    return running


def blocks(page: str, language: str, broker: TlsBroker) -> list[tuple[str, str]]:
    """Title (of a file, or empty) and text of the page's blocks, with the broker's ports."""
    text = (PAGES / page).read_text("utf-8")
    found = re.findall(
        rf'^```{language}(?: title="(.*?)")?\n(.*?)^```$', text, re.MULTILINE | re.DOTALL
    )
    assert found, page
    return [(title, with_ports(block, broker)) for title, block in found]


def with_ports(text: str, broker: TlsBroker) -> str:
    for port, actual in ((5672, broker.port), (5671, broker.tls_port)):
        text = text.replace(f"localhost:{port}", f"127.0.0.1:{actual}")
        text = text.replace(f"'localhost', {port}", f"'127.0.0.1', {actual}")
    return text.replace("setPort(5671)", f"setPort({broker.tls_port})")


def run_python(page: str, broker: TlsBroker) -> dict[str, Any]:
    """Run the blocks as one program; returns its names."""
    names: dict[str, Any] = {"__name__": "page"}
    for _, block in blocks(page, "python", broker):
        exec(compile(block, page, "exec"), names)
    return names


def restart(broker: TlsBroker) -> None:
    broker.kill()
    broker.start()


def waiting(broker: TlsBroker, queue: str) -> int:
    """How many messages are ready in the queue."""
    with pika.BlockingConnection(pika.URLParameters(broker.uri)) as connection:
        declared = connection.channel().queue_declare(queue, passive=True)
        return int(declared.method.message_count)


def test_pika(broker: TlsBroker, capsys: pytest.CaptureFixture[str]) -> None:
    page = run_python("pika.md", broker)
    assert "order-1 b'one'" in capsys.readouterr().out
    handled: list[str] = []

    def handle(message_id: str, body: bytes) -> None:
        handled.append(message_id)
        if message_id == "last":
            raise Enough

    def consume() -> None:
        with pytest.raises(Enough):
            page["work_forever"](handle)

    consumer = threading.Thread(target=consume, daemon=True)
    consumer.start()
    eventually(lambda: len(handled) == 2, "the messages of the page")
    broker.kill()
    publisher = threading.Thread(target=page["publish_once_more"], args=("last", b""), daemon=True)
    publisher.start()
    broker.start()
    for thread in (publisher, consumer):
        thread.join(PATIENCE_S)
        assert not thread.is_alive()
    assert {"order-2", "order-3", "last"} <= set(handled)

    def refuse(message_id: str, body: bytes) -> None:
        raise ValueError

    page["publish_once_more"]("bad", b"")
    with pika.BlockingConnection(page["parameters"]) as connection:
        page["work"](connection.channel(), refuse)
    # The last message came back, since its handler raised before the ack.
    assert waiting(broker, "orders.failed") == 2


def test_aio_pika(broker: TlsBroker, capsys: pytest.CaptureFixture[str]) -> None:
    page = run_python("aio-pika.md", broker)
    assert "100\n" in capsys.readouterr().out

    async def scenario() -> list[str]:
        handled: list[str] = []
        last = asyncio.Event()

        async def handle(message_id: str, body: bytes) -> None:
            handled.append(message_id)
            if message_id == "last":
                last.set()

        connection = await page["connect"]()
        async with connection:
            channel = await connection.channel()
            await channel.set_qos(prefetch_count=100)
            exchange, queue = await page["declare"](channel)
            worker = asyncio.create_task(page["work"](queue, handle))
            await page["publish"](exchange, "first", b"")
            await asyncio.to_thread(broker.kill)
            publisher = asyncio.create_task(page["publish_once_more"](exchange, "last", b""))
            await asyncio.to_thread(broker.start)
            await within(publisher)
            await within(last.wait())
            worker.cancel()
        return handled

    assert {"order-secure", "first", "last"} <= set(asyncio.run(scenario()))


async def within(awaited: Awaitable[object]) -> None:
    await asyncio.wait_for(awaited, PATIENCE_S)


def test_kombu(broker: TlsBroker, capsys: pytest.CaptureFixture[str]) -> None:
    page = run_python("kombu.md", broker)
    assert "order-1 {'number': 1}" in capsys.readouterr().out
    handled: list[str] = []
    workers: list[Any] = []

    def handle(message_id: str, body: object) -> None:
        handled.append(message_id)
        if message_id == "last":
            workers[0].should_stop = True

    def consume() -> None:
        with Connection(page["URL"], heartbeat=30) as connection:
            workers.append(page["Worker"](connection, handle))
            workers[0].run()

    consumer = threading.Thread(target=consume, daemon=True)
    consumer.start()
    eventually(lambda: handled == ["order-2"], "the message published with TLS")
    restart(broker)
    page["publish"](page["connection"], "last", {})
    consumer.join(PATIENCE_S)
    assert not consumer.is_alive()
    page["connection"].release()


def test_celery(broker: TlsBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (file, application), (_, call), (_, secure) = blocks("celery.md", "python", broker)
    (tmp_path / file).write_text(application)
    log_path = tmp_path / "log"
    with log_path.open("w") as log:
        worker = subprocess.Popen(
            [sys.executable, "-m", "celery", "-A", "shop", "worker", "--pool", "threads"],
            cwd=tmp_path, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
        )  # fmt: skip
    try:
        for _ in range(2):
            # The second call finds the worker connected anew.
            done = subprocess.run(
                [sys.executable, "-c", call], cwd=tmp_path, capture_output=True, text=True,
                timeout=PATIENCE_S * 2, check=False,
            )  # fmt: skip
            assert done.stdout == "charged 100 for order-1\n", (done.stderr, log_path.read_text())
            restart(broker)
        done = subprocess.run(
            [sys.executable, "-c", secure], cwd=tmp_path, capture_output=True, text=True,
            timeout=PATIENCE_S, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
    finally:
        worker.terminate()
        worker.wait(PATIENCE_S)


def test_fastapi(broker: TlsBroker) -> None:
    (_, application), (_, secure) = blocks("fastapi.md", "python", broker)
    names: dict[str, Any] = {"__name__": "shop"}
    exec(compile(application + secure, "fastapi.md", "exec", dont_inherit=True), names)
    app = names["app"]

    async def place(client: httpx.AsyncClient, order: dict[str, str]) -> None:
        """Send the order until it is stored, and wait until it is handled."""
        answer = await client.post("/orders", json=order)
        while answer.status_code != 202:
            assert answer.status_code == 503
            await asyncio.sleep(0.1)
            answer = await client.post("/orders", json=order)
        path = f"/orders/{order['id']}"
        while (answer := await client.get(path)).status_code != 200:
            await asyncio.sleep(0.01)
        assert answer.json() == order

    async def scenario() -> None:
        transport = httpx.ASGITransport(app)
        async with (
            app.router.lifespan_context(app),
            httpx.AsyncClient(transport=transport, base_url="http://shop") as client,
        ):
            for number in (1, 2):
                await within(place(client, {"id": f"order-{number}", "article": "hammer"}))
                await asyncio.to_thread(restart, broker)

    asyncio.run(scenario())


class Program:
    """A page's program in another language, which prints each message that it consumes."""

    def __init__(self, directory: Path, *command: str, **environment: str) -> None:
        self._output = directory / "output"
        with self._output.open("w") as output:
            self._process = subprocess.Popen(
                command, cwd=directory, env=os.environ | environment,
                stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
            )  # fmt: skip

    def await_line(self, line: str) -> None:
        def is_there() -> bool:
            text = self._output.read_text()
            assert self._process.poll() is None, text
            return line in text.splitlines()

        eventually(is_there, line)

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()


def drive(program: Program, broker: TlsBroker) -> None:
    """The program gets its own message, and one that is published when the broker is back."""
    try:
        program.await_line("order-1 one")
        restart(broker)
        with pika.BlockingConnection(pika.URLParameters(broker.uri)) as connection:
            properties = pika.BasicProperties(message_id="later", delivery_mode=2)
            connection.channel().basic_publish("orders", "new", b"too", properties)
        program.await_line("later too")
    finally:
        program.stop()


def write_program(page: str, language: str, path: Path, broker: TlsBroker) -> None:
    path.write_text("".join(block for _, block in blocks(page, language, broker)))


def test_node(broker: TlsBroker, tmp_path: Path, node_directory: Path) -> None:
    write_program("node.md", "javascript", tmp_path / "orders.js", broker)
    modules = str(node_directory / "node_modules")
    drive(Program(tmp_path, "node", "orders.js", NODE_PATH=modules), broker)


def test_java(broker: TlsBroker, tmp_path: Path) -> None:
    if shutil.which("javac") is None or not all(jar.exists() for jar in JARS):
        pytest.skip("a JDK or librabbitmq-client-java is not installed")
    write_program("java.md", "java", tmp_path / "Orders.java", broker)
    classes = ":".join(map(str, JARS))
    drive(Program(tmp_path, "java", "-cp", classes, "Orders.java"), broker)


def test_php(broker: TlsBroker, tmp_path: Path) -> None:
    if shutil.which("php") is None or not PHP_CLIENT.exists():
        pytest.skip("php-cli or php-amqplib is not installed")
    write_program("php.md", "php", tmp_path / "orders.php", broker)
    (tmp_path / "vendor").mkdir()
    (tmp_path / "vendor" / "autoload.php").write_text(f"<?php require '{PHP_CLIENT}';")
    drive(Program(tmp_path, "php", "orders.php"), broker)


def test_every_page_is_run_or_says_that_it_is_not() -> None:
    """The table of the index lists each page, and says of each page what is true."""
    rows = re.findall(
        r"^\| \[.*?\]\((.*?)\) \|.*\| (yes|no)[^|]*\|$",
        (PAGES / "index.md").read_text("utf-8"),
        re.MULTILINE,
    )
    assert {page for page, _ in rows} == {path.name for path in PAGES.glob("*.md")} - {"index.md"}
    mine = Path(__file__).read_text("utf-8")
    for page, answer in rows:
        assert (answer == "yes") == (f'"{page}"' in mine), page
        not_run = "tests do not run it" in " ".join((PAGES / page).read_text("utf-8").split())
        assert not_run == (answer == "no"), page
