"""The command line: `warren COMMAND`. Start reading in app.py.

May import every other package, but each command imports what it needs only when it runs: typing `warren --version` must
not load a broker, and a machine without Spark must not notice.
"""


def main() -> None:
    """The `warren` script."""
    from warren.cli.app import app

    app(prog_name="warren")
