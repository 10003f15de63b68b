"""Calls by the type of the request they carry out."""

from collections.abc import Callable
from typing import Any, Generic, TypeVar, get_args

_Request = TypeVar("_Request")
_Result = TypeVar("_Result")


class Dispatch(Generic[_Result]):
    """A table of calls: each takes the requests of one type and returns a `_Result`."""

    def __init__(self) -> None:
        self._calls: dict[type, Callable[[Any], _Result]] = {}

    def add(self, kind: type[_Request], call: Callable[[_Request], _Result]) -> None:
        """Have `call` carry out the requests of type `kind`."""
        self._calls[kind] = call

    def add_all(self, kinds: Any, call: Callable[[Any], _Result]) -> None:
        """Have `call` carry out the requests of all types in the union `kinds`."""
        for kind in get_args(kinds):
            self._calls[kind] = call

    def of(self, request: object) -> Callable[[Any], _Result] | None:
        """The call for `request`, None if it has another table's type."""
        return self._calls.get(type(request))
