"""The command `aliases`: links with the names of RabbitMQ's tools."""

import sys
from pathlib import Path
from typing import Final

from warrenmq.cli.control.command import Command, Run
from warrenmq.cli.control.exits import SOFTWARE, CommandError
from warrenmq.cli.control.formats.output import Output, Text

GROUP: Final = "Help"
# RabbitMQ's tools; programs.py says which commands each of them has.
TOOL_NAMES: Final = (
    "rabbitmqctl", "rabbitmq-diagnostics", "rabbitmq-plugins", "rabbitmq-queues",
    "rabbitmq-upgrade",
)  # fmt: skip


def _aliases(run: Run) -> Output:
    """Make the links, none if the directory has another file with one of the names."""
    executable = _executable()
    directory = Path(run[0])
    links = [directory / name for name in TOOL_NAMES]
    foreign = [link for link in links if link.is_symlink() or link.exists()]
    foreign = [link for link in foreign if link.resolve() != executable.resolve()]
    if foreign:
        text = f"Error:\n{foreign[0]} exists, and is no link to {executable}; nothing is changed"
        raise CommandError(text, SOFTWARE)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for link in links:
            if not link.exists():
                link.symlink_to(executable)
    except OSError as error:
        raise CommandError(f"Error:\n{error.filename}: {error.strerror}", SOFTWARE) from None
    return Text("\n".join(map(str, links)), {"links": [str(link) for link in links]})


def _executable() -> Path:
    """The executable that runs. Raises CommandError when the interpreter was started otherwise."""
    path = Path(sys.argv[0]).absolute()
    if path.is_file() and path.stat().st_mode & 0o111:
        return path
    raise CommandError(f"Error:\n{path} is no executable that a link could point to", SOFTWARE)


COMMANDS: Final = (
    Command(
        "aliases", GROUP, "Makes links rabbitmqctl, rabbitmq-plugins and so on in a directory",
        _aliases, "<directory>", (1, 1), needs="nothing",
        banner=lambda run: f"Linking RabbitMQ's tools in {run[0]} ...",
    ),
)  # fmt: skip
