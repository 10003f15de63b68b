"""One run: a fresh broker on the standard ports of this network namespace, and a suite against it.

    python -m tests.peers.run SUITE BROKER CHECKOUT DIRECTORY ENVIRONMENT

Only `python -m tests.peers` starts it, inside a new namespace. The results stand in
DIRECTORY/results.xml, the suite's output in DIRECTORY/output.txt.
"""

import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final

from bench.brokers import Broker, RabbitmqBroker, WarrenBroker
from tests.peers.cluster import ElsewhereBroker
from tests.peers.docker_api import serve
from tests.peers.namespace import raise_loopback
from tests.peers.suites import AMQP_PORT, SUITES, Suite

BROKERS: Final[dict[str, type[Broker] | type[ElsewhereBroker]]] = {
    "rabbitmq": RabbitmqBroker,
    "warren": WarrenBroker,
    "cluster": ElsewhereBroker,
}
RESULTS: Final = "results.xml"
OUTPUT: Final = "output.txt"
# A suite that takes longer has no results.
SUITE_TIMEOUT_S: Final = 3600


def run(suite: Suite, broker_name: str, checkout: Path, directory: Path, environment: str) -> None:
    """Run the suite; its failures are results, not errors."""
    settings = [] if suite.tls is None else suite.tls(checkout, directory / "certificates")
    broker = BROKERS[broker_name](directory / "broker", set(), tuple(settings), AMQP_PORT)
    places = {"environment": environment, "results": str(directory / RESULTS)}
    docker = serve() if suite.has_docker else None
    broker.start()
    try:
        with (directory / OUTPUT).open("wb") as output, suppress(subprocess.TimeoutExpired):
            subprocess.run(
                [part.format_map(places) for part in suite.command],
                cwd=checkout,
                env=_variables(suite, checkout, places),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                timeout=SUITE_TIMEOUT_S,
                check=False,
            )
    finally:
        broker.stop()
        if docker is not None:
            docker.shutdown()


def _variables(suite: Suite, checkout: Path, places: dict[str, str]) -> dict[str, str]:
    """The environment without what is for warren's own Python, with the checkout importable."""
    own = {"PYTHONPATH": str(checkout), "PYTHONDONTWRITEBYTECODE": "1"}
    of_suite = {key: value.format_map(places) for key, value in suite.environment.items()}
    kept = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")}
    return kept | own | of_suite


def main(arguments: list[str]) -> None:
    """Run the suite that the command line names."""
    name, broker_name, checkout, directory, environment = arguments
    raise_loopback()
    suite = next(suite for suite in SUITES if suite.name == name)
    run(suite, broker_name, Path(checkout), Path(directory), environment)


if __name__ == "__main__":
    main(sys.argv[1:])
