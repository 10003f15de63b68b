"""Checks the tests themselves: runs them against a private RabbitMQ node, and stops the node.

    python -m tests.support.against_rabbitmq [PYTEST ARGUMENTS]

A test that fails there is wrong about RabbitMQ, unless it tests a departure (`Amqp.departure`).
"""

import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

from bench.brokers import RabbitmqBroker, rabbitmq_server

# Plug-ins with exchange types that warren has as well.
PLUGINS = ("rabbitmq_consistent_hash_exchange", "rabbitmq_random_exchange")


def main(arguments: list[str]) -> int:
    """Run the tests; returns pytest's exit status."""
    if rabbitmq_server() is None:
        print("rabbitmq-server is not installed", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as directory:
        broker = RabbitmqBroker(Path(directory), set())
        plugins = Path(directory) / "enabled_plugins"
        plugins.write_text(f"[{','.join(PLUGINS)}].\n")
        broker.start()
        try:
            command = [
                sys.executable,
                "-m",
                "pytest",
                *(arguments or ["tests/protocol", "tests/interop"]),
            ]
            variables = {
                "WARREN_TEST_AMQP_URI": broker.uri,
                "WARREN_TEST_RABBITMQCTL": shlex.join(broker.tool_command("rabbitmqctl")),
            }
            return subprocess.run(command, env=os.environ | variables).returncode
        finally:
            broker.stop()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
