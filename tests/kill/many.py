"""`python -m tests.kill.many --queues 100000`: the costs of starts, stops, kills with many queues.
Prints a line for each step: its duration, and the node's processor time, memory and descriptors. A
broken promise is reported, the directory stays, with the log and the data, and the exit status is
1.
"""

import argparse
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tests.support.brokers.process import BrokerProcess
from tests.support.brokers.watched_broker import MIB, WatchedBroker
from tests.support.kills.many_queues import ManyQueues
from warrenmq.build import build_name

# Fractions of a stop's duration after which the node is killed.
MOMENTS = (0.0, 0.1, 0.25, 0.5, 0.75, 0.95)


class Steps:
    """Runs the steps and prints their costs."""

    def __init__(self, node: BrokerProcess) -> None:
        self.node = node
        self.broker = WatchedBroker(node)

    def run(self, name: str, step: Callable[[], object]) -> None:
        """Run and print one step."""
        before_s = self._cpu_s()
        started = time.monotonic()
        step()
        line = f"{name:38} {time.monotonic() - started:7.2f} s"
        if self.node.process is not None:
            after_s = self._cpu_s()
            line += f"  processor {after_s - before_s:6.2f} s  resident {self.broker.rss() / MIB:6.0f} MiB"
            line += f"  descriptors {self.broker.descriptors()}"
        print(line, flush=True)

    def _cpu_s(self) -> float:
        # User and system time in seconds; 0 without a process.
        if self.node.process is None:
            return 0.0
        fields = Path(f"/proc/{self.node.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def run(many: ManyQueues) -> None:
    """Run all steps."""
    node = many.node
    steps = Steps(node)
    everything = range(many.count)
    steps.run("start without queues", node.start)
    steps.run("declare", many.declare)
    steps.run("a message to each", lambda: many.publish(everything))
    stops: list[float] = []
    steps.run("stop", lambda: stops.append(many.stop()))
    steps.run("start", node.start)
    steps.run("look at each", many.check_counts)
    steps.run("another message to each", lambda: many.publish(everything))
    steps.run("ten seconds of nothing", lambda: time.sleep(10))
    node.kill()
    steps.run("start after SIGKILL", node.start)
    steps.run("get all messages", lambda: many.check_messages(everything))
    steps.run("stop with publishers", lambda: stops.append(many.stop_while_publishing()))
    steps.run("start", node.start)
    for moment in MOMENTS:
        was_stopped = many.stop_while_publishing(moment * stops[-1]) > 0
        what = "that was too late" if was_stopped else "while it stops"
        steps.run(f"start after SIGKILL {what}", node.start)
        steps.run("look at each", many.check_counts)
    steps.run("stop", lambda: stops.append(many.stop()))
    steps.run("start", node.start)
    steps.run("get all messages", lambda: many.check_messages(everything))
    steps.run("stop", lambda: stops.append(many.stop()))


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.kill.many", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--queues", type=int, default=100_000, metavar="N")
    parser.add_argument(
        "--directory", type=Path, metavar="DIR", help="where data lie (default: as tempfile)"
    )
    options = parser.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="warren-many-", dir=options.directory))
    node = BrokerProcess(directory)
    print(f"warren {build_name()}, {options.queues:,} queues")
    try:
        run(ManyQueues(node, options.queues))
    except Exception as error:  # whatever the error, the data stay for an inspection
        print(f"{error!r}\n{directory} is kept", file=sys.stderr)
        return 1
    finally:
        node.kill()
    shutil.rmtree(directory)
    return 0


if __name__ == "__main__":
    sys.exit(main())
