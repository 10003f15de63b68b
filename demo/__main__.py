"""`python -m demo`: run the story in a temporary directory; leave no process and no file behind.

Exit status: 0 when all checks passed, 1 when a check failed or the demo could not continue, 130
when interrupted.
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
from demo.processes import Processes
from demo.story import Story

FILES_MIN = 200
INTERRUPTED_EXIT = 130


def parse_arguments(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m demo", description=__doc__)
    parser.add_argument(
        "--files",
        type=int,
        metavar="N",
        help="publish only N files, evenly spread over the standard library (default: all of them)",
    )
    options = parser.parse_args(arguments)
    if options.files is not None and options.files < FILES_MIN:
        parser.error(
            f"--files must be at least {FILES_MIN}: fewer leave nothing to kill in the middle of"
        )
    return options


def main(arguments: list[str]) -> int:
    options = parse_arguments(arguments)
    console = Console(highlight=False)
    # SIGTERM and SIGHUP raise KeyboardInterrupt, as Ctrl-C does, so that `finally` cleans up.
    # SIGINT too needs the handler: in a shell's background or under nohup the process inherits it
    # ignored.
    for signal_number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(signal_number, signal.default_int_handler)
    directory = Path(tempfile.mkdtemp(prefix="warren-demo-"))
    processes = Processes(directory)
    checks = Checks()
    try:
        Story(console, processes, checks, options.files).tell()
    except KeyboardInterrupt:
        console.print("demo: interrupted", style="red")
        return INTERRUPTED_EXIT
    except (DemoError, OSError, pika.exceptions.AMQPError) as error:
        console.print(
            f"demo: {error or type(error).__name__}", style="red", markup=False, soft_wrap=True
        )
        for line in processes.last_words():
            console.print(f"  {line}", style="dim", markup=False, soft_wrap=True)
        return 1
    finally:
        # Ignore signals during the cleanup: an interrupted one would leave processes and files.
        for signal_number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(signal_number, signal.SIG_IGN)
        processes.kill_all()
        shutil.rmtree(directory, ignore_errors=True)
    return 0 if checks.all_passed else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
