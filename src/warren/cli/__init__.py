"""The command line: `warren COMMAND`. Start reading in app.py.

May import every other package, but each command imports what it needs only when it runs: typing `warren --version` must
not load a broker, and a machine without Spark must not notice.
"""

import sys


def main() -> None:
    """The `warren` script."""
    if sys.argv[1:2] == ["server"]:
        # Typer takes longer to load than a broker to start, and `warren server` is what is started again and again.
        from warren.cli import server

        sys.exit(server.main(sys.argv[2:]))
    from warren.cli.app import app

    app(prog_name="warren")
