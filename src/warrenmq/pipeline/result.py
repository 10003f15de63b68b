"""What a job gives back, the same for all: an outcome with an exit status, and fields that JSON can hold."""

import dataclasses
import datetime
from pathlib import Path
from typing import Any, Final

OK_EXIT: Final = 0
# The job ran to its end and found something, or did a part only.
FOUND_EXIT: Final = 1
FAILED_EXIT: Final = 2


class JobError(RuntimeError):
    """A job could not be done, or not begun. The text is one line that says why and what to do."""


@dataclasses.dataclass
class JobResult:
    """What a job did. Subclasses are dataclasses whose fields are the figures, named with their units."""

    @property
    def exit_code(self) -> int:
        """0: all was well; 1: something was found, or done in part."""
        return OK_EXIT

    def as_json(self) -> dict[str, Any]:
        """The fields as what JSON can say, paths and times as text."""
        return {
            field.name: json_value(getattr(self, field.name))
            for field in dataclasses.fields(self)
            if field.repr
        }

    def lines(self) -> list[str]:
        """The same for people, a line each."""
        return [
            f"{name.replace('_', ' ')}: {in_words(value)}" for name, value in self.as_json().items()
        ]


def must_have_parent(path: Path) -> None:
    """JobError when the directory that `path` is to be made in is not there: a job makes only the last name of a path."""
    if not path.absolute().parent.is_dir():
        raise JobError(f"there is no directory {path.parent} for {path.name}")


def in_words(value: Any) -> str:
    """A field of a result, as a person would write it."""
    if value is None or value in ({}, []):
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        return ", ".join(
            f"{name.replace('_', ' ')} {in_words(part)}" for name, part in value.items()
        )
    if isinstance(value, list):
        return "; ".join(in_words(part) for part in value)
    return str(value)


def json_value(value: Any) -> Any:
    """`value` with everything in it that JSON has no word for as text."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {
            field.name: json_value(getattr(value, field.name))
            for field in dataclasses.fields(value)
        }
    if isinstance(value, dict):
        return {str(key): json_value(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [json_value(part) for part in value]
    if isinstance(value, datetime.datetime | datetime.date):
        return value.isoformat()
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return value
