"""The result of a job: an exit status, and fields that JSON can hold."""

import dataclasses
import datetime
from pathlib import Path
from typing import Any, Final

OK_EXIT: Final = 0
# The job ran to its end and found problems, or did only a part.
FOUND_EXIT: Final = 1
FAILED_EXIT: Final = 2


class JobError(RuntimeError):
    """A job could not start or be done. The text is one line with the reason and the remedy."""


@dataclasses.dataclass
class JobResult:
    """Base of job results: dataclasses whose fields are figures, named with their units."""

    @property
    def exit_code(self) -> int:
        """0: success; 1: the job found problems or did only a part."""
        return OK_EXIT

    def as_json(self) -> dict[str, Any]:
        """The fields as JSON values, without those with `repr=False`; paths and times are text."""
        return {
            field.name: json_value(getattr(self, field.name))
            for field in dataclasses.fields(self)
            if field.repr
        }

    def lines(self) -> list[str]:
        """The fields as lines of text for people."""
        return [
            f"{name.replace('_', ' ')}: {in_words(value)}" for name, value in self.as_json().items()
        ]


def must_have_parent(path: Path) -> None:
    """JobError unless the parent of `path` exists: a job creates only the last part of a path."""
    if not path.absolute().parent.is_dir():
        raise JobError(f"there is no directory {path.parent} for {path.name}")


def in_words(value: Any) -> str:
    """A JSON value of a result as text for people."""
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
    """Convert `value` for JSON: dataclasses become objects, times, paths and bytes become text."""
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
