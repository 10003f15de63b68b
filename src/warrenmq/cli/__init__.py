"""The command line: `warren COMMAND`. Start reading in app.py.

May import every other package, but each command imports what it needs only when it runs: typing `warren --version` must
not load a broker, and a machine without Spark must not notice.
"""

import os
import signal
import sys


def main() -> None:
    """The `warren` script."""
    # Shells start what is to run in the background with interrupts ignored, and so does nohup.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if sys.argv[1:2] == ["server"]:
        # Typer takes longer to load than a broker to start, and `warren server` is what is started again and again.
        from warrenmq.cli import server

        sys.exit(server.main(sys.argv[2:]))
    from warrenmq.cli.app import app

    try:
        app(prog_name="warren")
    finally:
        finish_output()


def finish_output() -> None:
    """Write out what was printed. A reader that has seen enough (`warren ... | head`) is no error, so the exit status stays."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        # Python flushes once more at its end, and would print a stack.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
