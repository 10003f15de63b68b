"""The command line: `warren COMMAND`. Start reading in app.py.

May import every other package, but each command imports what it needs only when it runs:
`warren --version` must not load a broker, and a machine without Spark must not notice.
"""

import os
import signal
import sys


def main() -> None:
    """Run the `warren` script; `warren server` bypasses Typer."""
    # Shells and nohup start background programs with SIGINT ignored; restore Python's handler.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if sys.argv[1:2] == ["server"]:
        # Typer takes longer to load than a broker to start, and supervisors start `warren server`
        # again and again.
        from warrenmq.cli import server

        sys.exit(server.main(sys.argv[2:]))
    from warrenmq.cli.app import app

    try:
        app(prog_name="warren")
    finally:
        finish_output()


def finish_output() -> None:
    """Flush standard output; a reader that stops early (`warren ... | head`) is no error.

    The exit status stays in that case.
    """
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        # Python flushes again at exit and would print a stack trace, so point standard output at
        # nothing.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
