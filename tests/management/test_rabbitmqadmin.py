"""`rabbitmqadmin` against the API of a node: RabbitMQ's own, unchanged, and the one it serves."""

import json
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from tests.support.brokers.http_api import HttpNode

# Where packages of RabbitMQ have the script, which its management plug-in serves.
_LIBRARY = Path("/usr/lib/rabbitmq/lib")
_SCRIPT = "rabbitmq_server-*/plugins/rabbitmq_management-*/priv/www/cli/rabbitmqadmin"

DECLARED = (
    ("vhost", "name=v2"),
    ("user", "name=u", "password=p", "tags=management"),
    ("permission", "vhost=/", "user=u", "configure=.*", "write=.*", "read=.*"),
    ("exchange", "name=x", "type=topic"),
    ("queue", "name=q", "durable=true", 'arguments={"x-max-length":5}'),
    ("binding", "source=x", "destination=q", "routing_key=a.#"),
    ("policy", "name=p", "pattern=^q", 'definition={"max-length":3}', "apply-to=queues"),
    ("operator_policy", "name=o", "pattern=^q", 'definition={"max-length":3}', "apply-to=queues"),
    ("parameter", "component=federation-upstream", "name=f", 'value={"uri":"amqp://"}'),
    ("vhost_limit", "vhost=/", "name=max-queues", "value=100"),
)
LISTED = (
    "users", "vhosts", "exchanges", "bindings", "permissions", "queues", "policies",
    "operator_policies", "nodes", "parameters", "vhost_limits",
)  # fmt: skip
DELETED = (
    ("binding", "source=x", "destination_type=queue", "destination=q", "properties_key=a.%23"),
    ("queue", "name=q"),
    ("exchange", "name=x"),
    ("policy", "name=p"),
    ("operator_policy", "name=o"),
    ("parameter", "component=federation-upstream", "name=f"),
    ("vhost_limit", "vhost=/", "name=max-queues"),
    ("permission", "vhost=/", "user=u"),
    ("user", "name=u"),
    ("vhost", "name=v2"),
)


# Command lines with the same outcome, after the objects above are declared.
COMPARED = (
    *(("-f", form, "list", "policies") for form in ("table", "long", "tsv", "kvp", "raw_json", "pretty_json", "bash")),
    *(("list", what) for what in ("queues", "exchanges", "bindings", "users", "permissions", "parameters", "vhost_limits", "connections")),
    ("-f", "kvp", "show", "overview"),
    ("-d", "2", "-f", "tsv", "list", "operator_policies"),
    ("-S", "name", "-R", "-V", "/", "list", "exchanges", "name"),
    ("-f", "tsv", "list", "queues", "name", "durable", "messages"),
    ("-q", "list", "consumers"),
    ("publish", "exchange=none", "routing_key=a", "payload=hello"),
    ("get", "queue=q", "count=2"),
    ("-f", "long", "get", "queue=none"),
    ("declare", "queue", "name=q", "durable=false"),
    ("declare", "exchange", "name=x"),
    ("declare", "binding", "source=x", "destination=q", "nme=x"),
    ("declare", "policy", "name=p", "pattern=^q", "definition={max-length}"),
    ("delete", "binding", "source=x", "destination=q", "destination_type=queue"),
    ("-p", "wrong", "list", "queues"),
    ("-P", "1", "-t", "5", "list", "queues"),
    ("list", "nonsense"),
    ("nonsense",),
    ("help", "nonsense"),
    ("-c", "/none.conf", "list", "queues"),
)  # fmt: skip


class Script:
    """A `rabbitmqadmin` that talks to the API of a node."""

    def __init__(self, path: Path, node: HttpNode) -> None:
        self._command = [sys.executable, str(path), "-P", str(urlsplit(node.url).port)]

    def run(self, *arguments: str) -> tuple[int, str, str]:
        """Exit status, standard output and the last lines of standard error."""
        command = [*self._command, *arguments]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=60)
        faults = ended.stderr.strip().splitlines()
        return ended.returncode, ended.stdout, "\n".join(faults[-3:])

    def __call__(self, *arguments: str, status: int = 0) -> str:
        """All that a command says, which ends with `status`."""
        returned, output, errors = self.run(*arguments)
        assert returned == status, (arguments, errors)
        return output + errors


@pytest.fixture(scope="module")
def theirs(http_node: HttpNode) -> Script:
    """RabbitMQ's script."""
    path = next(_LIBRARY.glob(_SCRIPT), None)
    if path is None:
        pytest.skip("rabbitmq-server is not installed")
    return Script(path, http_node)


@pytest.fixture(scope="module")
def ours(http_node: HttpNode, tmp_path_factory: pytest.TempPathFactory) -> Script:
    """The script that the API serves."""
    reply = httpx.get(f"{http_node.url}cli/rabbitmqadmin", timeout=30)
    assert reply.headers["content-type"] == "application/octet-stream"
    path = tmp_path_factory.mktemp("script") / "rabbitmqadmin"
    path.write_bytes(reply.content)
    return Script(path, http_node)


@pytest.mark.parametrize("name", ["theirs", "ours"])
def test_all_its_commands_work(name: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    run: Script = request.getfixturevalue(name)
    run("show", "overview")
    for kind, *fields in DECLARED:
        assert f"{kind} declared" in run("declare", kind, *fields)
    for what in LISTED:
        assert json.loads(run("-f", "raw_json", "list", what))
    assert "Message published" in run("publish", "exchange=x", "routing_key=a.b", "payload=hello")
    for mode in ("ack_requeue_true", "ack_requeue_false"):
        assert "hello" in run("get", "queue=q", f"ackmode={mode}")
    run("publish", "routing_key=q", "payload=hello")
    payload = tmp_path / "payload"
    run("get", "queue=q", f"payload_file={payload}")
    assert payload.read_bytes() == b"hello"
    for vhost in ([], ["-V", "/"]):
        file = str(tmp_path / "definitions.json")
        run(*vhost, "export", file)
        run(*vhost, "import", file)
    assert "queue purged" in run("purge", "queue", "name=q")
    for kind, *fields in DELETED:
        assert f"{kind} deleted" in run("delete", kind, *fields)
    assert "Not found" in run("close", "connection", "name=none", status=1)
    assert "Not found" in run("delete", "queue", "name=none", status=1)


def test_the_two_scripts_say_the_same(theirs: Script, ours: Script) -> None:
    for kind, *fields in DECLARED:
        ours("declare", kind, *fields)
    for command in COMPARED:
        assert ours.run(*command) == theirs.run(*command), command
    for kind, *fields in DELETED:
        ours("delete", kind, *fields)


def test_options_come_from_a_file_and_a_uri(
    http_node: HttpNode, ours: Script, tmp_path: Path
) -> None:
    file = tmp_path / "rabbitmqadmin.conf"
    parts = urlsplit(http_node.url)
    file.write_text(f"[near]\nhostname = {parts.hostname}\nport = {parts.port}\nvhost = /\n")
    ours("-c", str(file), "-N", "near", "declare", "queue", "name=other")
    uri = f"http://guest:guest@{parts.netloc}"
    assert ours("-f", "bash", "-U", uri, "list", "queues") == "other\n"
    assert "section 'far'" in ours("-c", str(file), "-N", "far", "list", "queues", status=1)
    # RabbitMQ's script has a fault with bytes that are no text.
    ours("publish", "routing_key=other", "payload=/w==", "payload_encoding=base64")
    ours("get", "queue=other", f"payload_file={tmp_path}/payload")
    assert (tmp_path / "payload").read_bytes() == b"\xff"
    ours("delete", "queue", "name=other")


def test_a_page_says_where_the_script_is(http_node: HttpNode) -> None:
    for path in ("cli", "cli/", "cli/index.html"):
        assert 'href="rabbitmqadmin"' in httpx.get(f"{http_node.url}{path}", timeout=30).text
