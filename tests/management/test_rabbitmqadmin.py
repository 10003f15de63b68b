"""RabbitMQ's own `rabbitmqadmin`, unchanged, against the API of a node."""

import json
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

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


def test_all_its_commands_work(http_node: HttpNode, tmp_path: Path) -> None:
    script = next(_LIBRARY.glob(_SCRIPT), None)
    if script is None:
        pytest.skip("rabbitmq-server is not installed")
    port = urlsplit(http_node.url).port

    def run(*arguments: str, status: int = 0) -> str:
        command = [sys.executable, str(script), "-P", str(port), *arguments]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert ended.returncode == status, (arguments, ended.stderr)
        return ended.stdout + ended.stderr

    run("show", "overview")
    for kind, *fields in DECLARED:
        assert f"{kind} declared" in run("declare", kind, *fields)
    for what in LISTED:
        assert json.loads(run("-f", "raw_json", "list", what))
    assert "Message published" in run("publish", "exchange=x", "routing_key=a.b", "payload=hello")
    for mode in ("ack_requeue_true", "ack_requeue_false"):
        assert "hello" in run("get", "queue=q", f"ackmode={mode}")
    for vhost in ([], ["-V", "/"]):
        file = str(tmp_path / "definitions.json")
        run(*vhost, "export", file)
        run(*vhost, "import", file)
    assert "queue purged" in run("purge", "queue", "name=q")
    for kind, *fields in DELETED:
        assert f"{kind} deleted" in run("delete", kind, *fields)
    assert "Not found" in run("close", "connection", "name=none", status=1)
    assert "Not found" in run("delete", "queue", "name=none", status=1)
