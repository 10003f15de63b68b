"""Log lines of a connection, in RabbitMQ's words and at its levels, so that tools for RabbitMQ's logs read ours.

    accepting AMQP connection <0.7.0> (127.0.0.1:50000 -> 127.0.0.1:5672)
    connection <0.7.0> (127.0.0.1:50000 -> 127.0.0.1:5672 - app): user 'guest' authenticated and granted access to vhost '/'
    closing AMQP connection <0.7.0> (127.0.0.1:50000 -> 127.0.0.1:5672 - app, vhost: '/', user: 'guest')

The number in the place of Erlang's process id is the connection's own.
"""

import logging
from typing import Final

from mypy_extensions import i64

from warrenmq.wire.errors import REPLY_NAMES, AmqpError, ConnectionException
from warrenmq.wire.methods import METHOD_NAMES

logger = logging.getLogger("warren.connection")

_CONTROLS: Final = {number: f"\\x{number:02x}" for number in (*range(32), 127)}


class ConnectionLog:
    """The log of one connection; `peer` is `CLIENT -> SERVER`."""

    def __init__(self, number: i64, peer: str) -> None:
        self._id: str = f"<0.{number}.0>"
        self._name: str = peer
        self._user: str = ""
        self._vhost: str = ""
        self._has_ended: bool = False
        logger.info("accepting AMQP connection %s (%s)", self._id, self._name)

    def named(self, client_name: str) -> None:
        """The client has said what it is called."""
        shown = _one_line(client_name)
        logger.info(
            "connection %s (%s) has a client-provided name: %s", self._id, self._name, shown
        )
        self._name = f"{self._name} - {shown}"

    def authenticated(self, user: bytes) -> None:
        """The user's password was right. RabbitMQ tells of it when it is known which vhost they may enter."""
        self._user = _one_line(user.decode("utf-8", "replace"))

    def granted(self, vhost: bytes) -> None:
        """The user may enter the vhost."""
        self._vhost = _one_line(vhost.decode("utf-8", "replace"))
        logger.info(
            "connection %s (%s): user '%s' authenticated and granted access to vhost '%s'",
            self._id,
            self._name,
            self._user,
            self._vhost,
        )

    def refused(self, text: str) -> None:
        """The login failed."""
        logger.error(
            "Error on AMQP connection %s (%s, state: starting):\n%s",
            self._id,
            self._name,
            _one_line(text),
        )

    def channel_error(self, channel: i64, error: AmqpError, method_id: i64) -> None:
        """A channel is closed for an error of the client; `method_id` is the method to blame, 0 for none."""
        logger.error(
            "Channel error on connection %s (%s%s), channel %d:\n%s",
            self._id,
            self._name,
            self._who(),
            channel,
            _operation_text(error, method_id),
        )

    def connection_error(self, error: AmqpError, state: str) -> None:
        """The connection is closed for an error."""
        text = _explanation(error)
        who = f", user: '{self._user}'" if self._user else ""
        if self._vhost:
            text = _operation_text(error, error.class_id << 16 | error.method_id)
            who = self._who()
        logger.error(
            "Error on AMQP connection %s (%s%s, state: %s):\n%s",
            self._id,
            self._name,
            who,
            state,
            text,
        )

    def socket_lost(self, is_unexpected: bool) -> None:
        """The socket is gone; `is_unexpected`: nobody had closed the connection before."""
        if is_unexpected:
            self._end(logging.WARNING, ":\nclient unexpectedly closed TCP connection")
        else:
            self._end(logging.INFO, "")

    def heartbeats_missed(self, timeout_s: i64) -> None:
        """The peer was silent for so long that it counts as dead."""
        self._end(logging.ERROR, f":\nmissed heartbeats from client, timeout: {timeout_s}s")

    def socket_stuck(self, buffered_bytes: i64, seconds: i64) -> None:
        """The client does not read its socket, and others need the room that its messages take."""
        text = f":\nclient has not read its socket for {seconds}s, {buffered_bytes} bytes wait for it and others need the room"
        self._end(logging.WARNING, text)

    def _end(self, level: int, reason: str) -> None:
        # Once: the socket of a peer that is dead goes as well.
        if not self._has_ended:
            self._has_ended = True
            who = self._who()
            logger.log(
                level, "closing AMQP connection %s (%s%s)%s", self._id, self._name, who, reason
            )

    def _who(self) -> str:
        if not self._user:
            return ""
        return f", vhost: '{self._vhost or 'none'}', user: '{self._user}'"


def _operation_text(error: AmqpError, method_id: i64) -> str:
    kind = "connection" if isinstance(error, ConnectionException) else "channel"
    method = METHOD_NAMES.get(method_id, "none")
    name = REPLY_NAMES.get(error.code, str(error.code)).lower()
    return f"operation {method} caused a {kind} exception {name}: {_explanation(error)}"


def _explanation(error: AmqpError) -> str:
    return _one_line(error.text.partition(" - ")[2] or error.text)


def _one_line(text: str) -> str:
    """`text` of a client: it must not look like further lines of the log."""
    return text.translate(_CONTROLS)
