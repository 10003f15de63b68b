"""The rights of a user in a vhost: which exchanges and queues it may configure, write and read.

A right is a regular expression that is searched for in the name, not anchored, as in RabbitMQ; an
empty one matches the empty name only. An invalid one matches nothing. The default exchange is
looked up under the name `amq.default`. Rights are checked before existence, so that a name without
a right does not reveal whether it is taken (protocol 5.2).
"""

from __future__ import annotations

import re
from typing import Final

from mypy_extensions import i64

from warrenmq.routing.equivalence import resource_text
from warrenmq.vocabulary.names import name_text
from warrenmq.wire.errors import ACCESS_REFUSED, ChannelException

# Names of which one right remembers the answer; then it starts over. Clients may send any number.
_REMEMBERED_MAX: Final = 1024
_DEFAULT_EXCHANGE: Final = b"amq.default"

EXCHANGE: Final = "exchange"
QUEUE: Final = "queue"


class Right:
    """One regular expression over names."""

    def __init__(self, pattern: str) -> None:
        self._known: dict[bytes, bool] = {}
        self._pattern: re.Pattern[bytes] | None = None
        try:
            # As RabbitMQ does it: names and patterns are octets.
            self._pattern = re.compile((pattern or "^$").encode())
        except re.error:
            self._pattern = None

    def is_valid(self) -> bool:
        """Whether Python can compile the expression; RabbitMQ's PCRE knows a little more."""
        return self._pattern is not None

    def covers(self, name: bytes) -> bool:
        """Whether the pattern is found in `name`."""
        known = self._known.get(name)
        if known is not None:
            return known
        pattern = self._pattern
        found = pattern is not None and pattern.search(name) is not None
        if len(self._known) >= _REMEMBERED_MAX:
            self._known.clear()
        self._known[name] = found
        return found


class Rights:
    """The rights of `user` in `vhost`; `kind` is EXCHANGE or QUEUE.

    The methods `expect_*` raise ChannelException 403 when the right is missing.
    """

    def __init__(self, user: bytes, vhost: bytes, configure: str, write: str, read: str) -> None:
        self._user: bytes = user
        self._vhost: bytes = vhost
        self._configure: Right = Right(configure)
        self._write: Right = Right(write)
        self._read: Right = Right(read)

    def expect_configure(
        self, kind: str, name: bytes, class_id: i64 = 0, method_id: i64 = 0
    ) -> None:
        """Require the right to declare and delete `name`."""
        self._expect(self._configure, kind, name, class_id, method_id)

    def expect_write(self, kind: str, name: bytes, class_id: i64 = 0, method_id: i64 = 0) -> None:
        """Require the right to publish to `name`, or to bind it to a source."""
        self._expect(self._write, kind, name, class_id, method_id)

    def expect_read(self, kind: str, name: bytes, class_id: i64 = 0, method_id: i64 = 0) -> None:
        """Require the right to consume from `name`, or to bind something to it."""
        self._expect(self._read, kind, name, class_id, method_id)

    def write_refusal(self, kind: str, name: bytes) -> str:
        """The text that refuses a publish to `name`; "" when the user has the right."""
        return self._refusal(self._write, kind, name)

    def read_refusal(self, kind: str, name: bytes) -> str:
        """The text that refuses to read from `name`; "" when the user has the right."""
        return self._refusal(self._read, kind, name)

    def _expect(self, right: Right, kind: str, name: bytes, class_id: i64, method_id: i64) -> None:
        refusal = self._refusal(right, kind, name)
        if refusal:
            raise ChannelException(ACCESS_REFUSED, refusal, class_id, method_id)

    def _refusal(self, right: Right, kind: str, name: bytes) -> str:
        if not name and kind == EXCHANGE:
            name = _DEFAULT_EXCHANGE
        if right.covers(name):
            return ""
        text = resource_text(kind, name, self._vhost)
        return f"access to {text} refused for user '{name_text(self._user)}'"


# Those of a client that has not opened a vhost.
NO_RIGHTS: Final = Rights(b"", b"", "", "", "")
