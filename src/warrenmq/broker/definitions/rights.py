"""The rights of a user in a vhost: which exchanges and queues it may configure, write and read.

An object of `Rights` lives as long as its user and its vhost. A change of permissions changes it in
place, so a session that holds it asks by the new permissions at once.

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
from warrenmq.vocabulary.patterns.errors import PatternError
from warrenmq.vocabulary.patterns.pattern import Pattern, compiled
from warrenmq.wire.errors import ACCESS_REFUSED, ChannelException

# Names, and routing keys, for which one right remembers the answer; then it starts over. Clients
# may send any number.
_NAMES_MAX: Final = 1024
_KEYS_MAX: Final = 128
_DEFAULT_EXCHANGE: Final = b"amq.default"

# Is found in no name, not even in the empty one.
_NOTHING: Final = r"[^\x00-\xff]"

EXCHANGE: Final = "exchange"
QUEUE: Final = "queue"


class Right:
    """One regular expression over names; it remembers the answer for `remembered_max` of them."""

    def __init__(self, pattern: str, remembered_max: i64 = _NAMES_MAX) -> None:
        self._remembered_max: i64 = remembered_max
        self._known: dict[bytes, bool] = {}
        self._pattern: Pattern | None = None
        # Why the expression is invalid, or not supported; "" = it is neither.
        self.error: str = ""
        # An empty expression stands for `^$`. A start has this one and that of no name only, and
        # needs no library for them.
        self._is_empty: bool = pattern == ""
        if self._is_empty or pattern == _NOTHING:
            return
        try:
            self._pattern = compiled(pattern)
        except PatternError as error:
            self.error = str(error)

    def covers(self, name: bytes) -> bool:
        """Whether the pattern is found in `name`."""
        known = self._known.get(name)
        if known is not None:
            return known
        pattern = self._pattern
        if self._is_empty:
            # The end is also before a last newline.
            found = name == b"" or name == b"\n"
        else:
            found = pattern is not None and pattern.is_found_in(name)
        if len(self._known) >= self._remembered_max:
            self._known.clear()
        self._known[name] = found
        return found


class TopicRights:
    """The rights of a user at one topic exchange: two patterns over routing keys."""

    def __init__(self, write: str, read: str) -> None:
        self.write: Right = Right(write, _KEYS_MAX)
        self.read: Right = Right(read, _KEYS_MAX)


class Rights:
    """The rights of `user` in `vhost`; `kind` is EXCHANGE or QUEUE.

    The methods `expect_*` raise ChannelException 403 when the right is missing.
    """

    def __init__(self, user: bytes, vhost: bytes, configure: str, write: str, read: str) -> None:
        self._user: bytes = user
        self._vhost: bytes = vhost
        # False: the user may not enter the vhost, and its open sessions may do nothing any more.
        self.is_granted: bool = True
        # Rights at topic exchanges, by name of the exchange, in addition to those of the exchange.
        # An exchange without an entry takes every topic.
        self.topics: dict[bytes, TopicRights] = {}
        self._configure: Right = Right(configure)
        self._write: Right = Right(write)
        self._read: Right = Right(read)

    def grant(self, configure: str, write: str, read: str) -> None:
        """Replace the rights by these patterns."""
        self.is_granted = True
        self._configure = Right(configure)
        self._write = Right(write)
        self._read = Right(read)

    def revoke(self) -> None:
        """Take all rights away; topic permissions stay."""
        self.grant(_NOTHING, _NOTHING, _NOTHING)
        self.is_granted = False

    def put_topic(self, exchange: bytes, write: str, read: str) -> None:
        """Set the rights at a topic exchange, which need not exist."""
        user, vhost = self._user, self._vhost
        self.topics[exchange] = TopicRights(
            _filled_in(write, user, vhost), _filled_in(read, user, vhost)
        )

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

    def expect_topic_read(self, exchange: bytes, key: bytes) -> None:
        """Require the right to bind something to a topic exchange with the key `key`."""
        topic = self.topics.get(exchange)
        if topic is not None and not topic.read.covers(key):
            raise ChannelException(ACCESS_REFUSED, self.topic_refusal(exchange, key))

    def topic_write_refusal(self, exchange: bytes, key: bytes) -> str:
        """The text that refuses a publish with `key`; "" when the user has the right."""
        topic = self.topics.get(exchange)
        if topic is None or topic.write.covers(key):
            return ""
        return self.topic_refusal(exchange, key)

    def configure_refusal(self, kind: str, name: bytes) -> str:
        """The text that refuses to declare or delete `name`; "" when the user has the right."""
        return self._refusal(self._configure, kind, name)

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

    def topic_refusal(self, exchange: bytes, key: bytes) -> str:
        """The text that refuses the routing key `key` at a topic exchange."""
        text = resource_text(EXCHANGE, exchange, self._vhost)
        user = name_text(self._user)
        return f"access to topic '{name_text(key)}' in {text} refused for user '{user}'"


def _filled_in(pattern: str, user: bytes, vhost: bytes) -> str:
    """`pattern` with the names of user and vhost, which match as plain text, in their places.

    The placeholder `{client_id}` stays: only MQTT has client ids.
    """
    for place, name in (("{username}", user), ("{vhost}", vhost)):
        # An escaped name has no braces that could be a placeholder.
        pattern = pattern.replace(place, re.escape(name.decode("utf-8", "surrogateescape")))
    return pattern


# The rights of a client that has not opened a vhost.
NO_RIGHTS: Final = Rights(b"", b"", "", "", "")
