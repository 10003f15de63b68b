"""Records the golden outputs from a RabbitMQ 3.10.8 on ports of its own.

Run from the root of the repository: `python -m tests.warrenctl.record`.
"""

import json
import tempfile
from pathlib import Path

from bench.brokers import RabbitmqBroker
from tests.warrenctl.runner import Place, as_json, run_families
from tests.warrenctl.scenario import Call

GOLDEN = Path(__file__).with_name("golden")


def record(directory: Path) -> None:
    """Start a RabbitMQ in `directory`, run the scenario and write its results."""
    broker = RabbitmqBroker(directory / "rabbitmq", set())
    broker.start()

    def run(call: Call, arguments: list[str]) -> tuple[str, str, int]:
        done = broker.run_tool(call.tool, *arguments, stdin=call.stdin)
        return done.stdout, done.stderr, done.returncode

    try:
        pid_file = Path(f"{broker.node_directory()}.pid")
        place = Place(broker.node_name(), broker.port, directory, int(pid_file.read_text()))
        for family, results in run_families(run, place).items():
            text = json.dumps(as_json(results), indent=1, ensure_ascii=False)
            (GOLDEN / f"{family}.json").write_text(text + "\n")
    finally:
        broker.stop()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        record(Path(made))
