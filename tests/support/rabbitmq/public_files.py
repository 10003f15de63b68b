"""Files of RabbitMQ's users as public repositories have them: reduced, and with other names.

Each has the verdict of RabbitMQ 3.10.8 and that of warren: `accepted`, or why it is refused.

    == NAME
    rabbitmq: accepted
    warren: FILE:2: heartbeat: expected an integer, got 'x'
    the file's text
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ACCEPTED: Final = "accepted"
_CASE: Final = re.compile(r"^== (.*)\nrabbitmq: (.*)\nwarren: (.*)\n", re.MULTILINE)


@dataclass(frozen=True)
class PublicFile:
    """One file, with RabbitMQ's verdict and warren's."""

    name: str
    rabbitmq: str
    warren: str
    text: str


def public_files(path: Path) -> list[PublicFile]:
    """The files in the list at `path`."""
    parts = _CASE.split(path.read_text("utf-8"))[1:]
    return [PublicFile(*parts[index : index + 4]) for index in range(0, len(parts), 4)]
