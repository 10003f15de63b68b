"""`python -m demo.cluster`: run the story in a temporary directory; leave no process and no file.

Exit status: 0 when all checks passed, 1 when a check failed or the demo could not continue, 2 when
etcd is not installed, 130 when interrupted.
"""

import argparse
import shutil
import signal
import sys
import tempfile
from pathlib import Path

import pika
from rich.console import Console

from demo.checks import Checks, DemoError
from demo.cluster.network_here import network_here
from demo.cluster.networks import Network
from demo.cluster.picture import draw, gap_table
from demo.cluster.story import ClusterStory
from demo.processes import Processes
from demo.report import show_checks
from simulator.checker.violation import Rule

MISSING_EXIT = 2
INTERRUPTED_EXIT = 130


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m demo.cluster", description=__doc__)
    parser.add_argument(
        "--seconds", type=float, default=6, metavar="N",
        help="how long clients work undisturbed, besides the faults (default: 6)",
    )  # fmt: skip
    parser.add_argument(
        "--relays", action="store_true",
        help="part nodes by relays, even where network namespaces are allowed",
    )  # fmt: skip
    options = parser.parse_args(arguments)
    console = Console(highlight=False)
    if shutil.which("etcd") is None:
        console.print("demo: etcd is not installed; on Debian: apt-get install etcd-server")
        return MISSING_EXIT
    # SIGTERM and SIGHUP raise KeyboardInterrupt, as Ctrl-C does, so that `finally` cleans up.
    for signal_number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(signal_number, signal.default_int_handler)
    directory = Path(tempfile.mkdtemp(prefix="warren-demo-"))
    processes = Processes(directory)
    checks = Checks()
    network: Network | None = None
    try:
        network = network_here(options.relays)
        story = ClusterStory(console, processes, network, checks, options.seconds)
        story.tell()
    except KeyboardInterrupt:
        console.print("demo: interrupted", style="red")
        return INTERRUPTED_EXIT
    except (DemoError, OSError, pika.exceptions.AMQPError) as error:
        console.print(f"demo: {error or type(error).__name__}", style="red", markup=False)
        for line in processes.last_words():
            console.print(line, markup=False, soft_wrap=True)
        return 1
    finally:
        processes.kill_all()
        if network is not None:
            network.close()
        shutil.rmtree(directory, ignore_errors=True)
    _report(console, story, checks)
    return 0 if checks.all_passed else 1


def _report(console: Console, story: ClusterStory, checks: Checks) -> None:
    verdict, confirms = story.verdict, story.confirms
    assert verdict is not None and confirms is not None
    names = story.publishers
    title = "Confirms in each 100 ms; a row is a publisher, named by the node at which it began"
    console.print(f"\n{title}", style="bold", soft_wrap=True)
    for line in draw(confirms, story.faults, names, console.width):
        console.print(line, soft_wrap=True)
    console.print()
    console.print(gap_table(confirms, story.faults, names))
    counts = verdict.counts
    kinds = ("published", "confirmed", "nacked", "delivered")
    console.print("\nWhat clients and disks saw, judged by ten rules:", style="bold")
    console.print(", ".join(f"{counts[kind]:,} {kind}" for kind in kinds))
    broken = verdict.broken()
    rules = [f"{'✗' if rule in broken else '✓'} {rule.name.lower()}" for rule in Rule]
    console.print(" ".join(rules), markup=False)
    if not verdict.is_clean:
        console.print(verdict.text(), markup=False, soft_wrap=True)
    console.print()
    show_checks(console, checks, story.elapsed_s, None)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
