"""The files of jobs: all lie below one directory, whatever a user of the HTTP API asks for.

A place is a relative path below that directory. A path that leads out of it, by itself or through a
symbolic link, is refused; so are names that begin with a dot, which are this program's own.
"""

from pathlib import Path
from typing import Final

# Below it are the directories that runs need while they run.
_SCRATCH: Final = ".runs"


class BadPlace(Exception):
    """A path that a job may not have; the text is one line for its user."""


class JobsDirectory:
    """The directory `root`, below which jobs read and write; it is made when the first job runs."""

    def __init__(self, root: Path) -> None:
        self.root = root.absolute()

    def output(self, text: str) -> Path:
        """The path of what a job writes, whose parents are made. Raises BadPlace."""
        path = self._below(text)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise BadPlace(f"{text}: {error.strerror}") from None
        return path

    def source(self, text: str) -> Path:
        """The path of what a job reads. Raises BadPlace if there is none."""
        path = self._below(text)
        if not path.exists():
            raise BadPlace(f"{text}: there is no such file or directory in the jobs' directory")
        return path

    def scratch(self, run: str) -> Path:
        """The directory for what the job of a run needs while it runs; the run makes it."""
        return self.root / _SCRATCH / run

    def _below(self, text: str) -> Path:
        parts = text.split("/")
        if not text.isprintable() or any([not part or part.startswith(".") for part in parts]):
            raise BadPlace(
                f"{text!r} is no path below the jobs' directory, such as reports/today.html"
            )
        path = self.root / text
        try:
            found = path.resolve()
        except (OSError, RuntimeError) as error:
            raise BadPlace(f"{text}: {error}") from None
        if not found.is_relative_to(self.root.resolve()):
            raise BadPlace(f"{text} leads out of the jobs' directory")
        return path
