"""Lets the fault of a row name the row: `permissions[3]: User "u" does not exist`."""

from collections.abc import Iterator
from contextlib import contextmanager

from warrenmq.admin.definitions.administration import Refusal
from warrenmq.admin.definitions.document import DefinitionsError


@contextmanager
def in_row(section: str, number: int) -> Iterator[None]:
    """Name a row, by its section and its number from 0, in the faults that the body raises."""
    try:
        yield
    except DefinitionsError as error:
        raise DefinitionsError(f"{section}[{number}]: {error}") from None
    except Refusal as refusal:
        raise Refusal(refusal.code, f"{section}[{number}]: {refusal.text}") from None
