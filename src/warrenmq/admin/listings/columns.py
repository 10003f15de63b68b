"""Columns of listings: each is a function of one listed object.

A value of a column is None (RabbitMQ: undefined), a bool, a number, a text, or a list or a dict of
values. Names and texts that are no UTF-8 get replacement characters.
"""

from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

from warrenmq.admin.protocol.control import List
from warrenmq.broker.broker import Broker
from warrenmq.broker.vhost.vhost import Vhost
from warrenmq.wire.field_table import Field, decode_table

Listed = TypeVar("Listed")
_Named = TypeVar("_Named")
Columns = dict[str, Callable[[Listed], Any]]


class UnknownVhost(Exception):
    """The request names a vhost that the node does not have."""

    def __init__(self, name: str) -> None:
        super().__init__(f"Virtual host '{name}' does not exist")


class ListingOf(Generic[Listed]):
    """A listing of objects of one type; `find` returns those that exist when it is called."""

    def __init__(
        self, columns: Columns[Listed], find: Callable[[Broker, List], Iterator[Listed]]
    ) -> None:
        self._columns = columns
        self._find = find

    @property
    def column_names(self) -> list[str]:
        """The names of all columns."""
        return list(self._columns)

    def rows(self, broker: Broker, request: List) -> Iterator[list[Any]]:
        """Take a snapshot of the listed objects at once, then make a row at a time.

        Raises UnknownVhost.
        """
        columns = [self._columns[name] for name in request.columns]
        found = self._find(broker, request)
        return ([column(each) for column in columns] for each in found)


def vhost_of(broker: Broker, request: List) -> Vhost:
    """The vhost that the request names; raises UnknownVhost."""
    vhost = broker.vhosts.get(request.vhost.encode())
    if vhost is None:
        raise UnknownVhost(request.vhost)
    return vhost


def vhosts_of(broker: Broker, request: List) -> list[Vhost]:
    """The vhost that the request names, or all when it names none; raises UnknownVhost."""
    return [vhost_of(broker, request)] if request.vhost else list(broker.vhosts.values())


def chosen(objects: dict[bytes, _Named], names: list[str] | None) -> list[_Named]:
    """The objects with the names that a request gives, or all of them when it gives none."""
    if names is None:
        return list(objects.values())
    wanted = dict.fromkeys([name.encode() for name in names])
    return [objects[name] for name in wanted if name in objects]


def table_value(raw: bytes) -> dict[str, Any]:
    """The field table with body `raw` as a dict, in the order of the wire.

    A decimal becomes a float, a timestamp a number of seconds.
    """
    return _plain_table(decode_table(raw))


def _plain_table(table: dict[str, Field]) -> dict[str, Any]:
    return {
        name.encode("utf-8", "surrogateescape").decode("utf-8", "replace"): _plain(field.value)
        for name, field in table.items()
    }


def _plain(value: object) -> Any:
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, dict):
        return _plain_table(value)
    if isinstance(value, list):
        return [_plain(field.value) for field in value]
    if isinstance(value, tuple):
        scale, unscaled = value
        return unscaled / 10**scale
    return value
