"""Puts the tests themselves to the test: runs them against a private RabbitMQ node, which is stopped afterwards.

    python -m tests.support.against_rabbitmq [PYTEST ARGUMENTS]

What fails there is wrong about RabbitMQ, unless it is one of our departures (`Amqp.departure`).
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from bench.brokers import RabbitmqBroker, rabbitmq_server


def main(arguments: list[str]) -> int:
    """Returns pytest's exit status."""
    if rabbitmq_server() is None:
        print("rabbitmq-server is not installed", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as directory:
        broker = RabbitmqBroker(Path(directory), set())
        broker.start()
        try:
            command = [
                sys.executable,
                "-m",
                "pytest",
                *(arguments or ["tests/protocol", "tests/interop"]),
            ]
            return subprocess.run(
                command, env=os.environ | {"WARREN_TEST_AMQP_URI": broker.uri}
            ).returncode
        finally:
            broker.stop()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
