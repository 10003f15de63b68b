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
from demo.cluster.story import ClusterStory
from demo.processes import Processes

MISSING_EXIT = 2
INTERRUPTED_EXIT = 130


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m demo.cluster", description=__doc__)
    parser.add_argument(
        "--seconds", type=int, default=16, metavar="N", help="how long clients work (default: 16)"
    )
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
    story = ClusterStory(console, processes, checks, options.seconds)
    try:
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
        shutil.rmtree(directory, ignore_errors=True)
    _report(console, story, checks)
    return 0 if checks.all_passed else 1


def _report(console: Console, story: ClusterStory, checks: Checks) -> None:
    console.print()
    if story.verdict is not None:
        console.print("What the clients saw, judged by ten rules:", style="bold")
        console.print(story.verdict.text(), markup=False, soft_wrap=True)
        console.print()
    for check in checks.made:
        console.print(f"{'✓' if check.is_passed else '✗'} {check.text}", markup=False)
    if checks.all_passed:
        console.print(f"All {len(checks.made)} checks passed in {story.elapsed_s:.0f} s.")
    else:
        console.print(f"{len(checks.failed)} of {len(checks.made)} checks failed.", style="red")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
