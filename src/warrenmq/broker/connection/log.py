"""Log lines of a connection, in RabbitMQ's words and at its levels.

So tools for RabbitMQ's logs can read warren's. For example (long lines are cut in two here):

    accepting AMQP connection <0.7.0> (127.0.0.1:50000 -> 127.0.0.1:5672)
    connection <0.7.0> (127.0.0.1:50000 -> 127.0.0.1:5672 - app):
        user 'guest' authenticated and granted access to vhost '/'
    closing AMQP connection <0.7.0>
        (127.0.0.1:50000 -> 127.0.0.1:5672 - app, vhost: '/', user: 'guest')

RabbitMQ shows an Erlang process id here; warren shows the connection's number in the same form.
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
        self._number: i64 = number
        self._name: str = peer
        self._user: str = ""
        self._vhost: str = ""
        self._has_ended: bool = False
        logger.info("accepting AMQP connection %s (%s)", self._id(), self._name)

    def _id(self) -> str:
        return f"<0.{self._number}.0>"

    def named(self, client_name: str) -> None:
        """Log the client-provided name; all later lines carry it."""
        shown = _one_line(client_name)
        logger.info(
            "connection %s (%s) has a client-provided name: %s", self._id(), self._name, shown
        )
        self._name = f"{self._name} - {shown}"

    def authenticated(self, user: bytes) -> None:
        """Remember the user; as in RabbitMQ, the log line follows when the vhost is known."""
        self._user = _one_line(user.decode("utf-8", "replace"))

    def granted(self, vhost: bytes) -> None:
        """Log that the user has logged in and may enter the vhost."""
        self._vhost = _one_line(vhost.decode("utf-8", "replace"))
        logger.info(
            "connection %s (%s): user '%s' authenticated and granted access to vhost '%s'",
            self._id(),
            self._name,
            self._user,
            self._vhost,
        )

    def refused(self, text: str) -> None:
        """Log a failed login."""
        logger.error(
            "Error on AMQP connection %s (%s, state: starting):\n%s",
            self._id(),
            self._name,
            _one_line(text),
        )

    def channel_error(self, channel: i64, error: AmqpError, method_id: i64) -> None:
        """Log that a channel is closed for `error`; `method_id` is to blame (0: no method)."""
        logger.error(
            "Channel error on connection %s (%s%s), channel %d:\n%s",
            self._id(),
            self._name,
            self._who(),
            channel,
            _operation_text(error, method_id),
        )

    def connection_error(self, error: AmqpError, state: str) -> None:
        """Log that the connection is closed for `error`."""
        text = _explanation(error)
        who = f", user: '{self._user}'" if self._user else ""
        if self._vhost:
            text = _operation_text(error, error.class_id << 16 | error.method_id)
            who = self._who()
        logger.error(
            "Error on AMQP connection %s (%s%s, state: %s):\n%s",
            self._id(),
            self._name,
            who,
            state,
            text,
        )

    def socket_lost(self, is_unexpected: bool) -> None:
        """Log that the socket is gone; `is_unexpected`: no side had closed the connection."""
        if is_unexpected:
            self._end(logging.WARNING, ":\nclient unexpectedly closed TCP connection")
        else:
            self._end(logging.INFO, "")

    def handed_over(self, worker: i64) -> None:
        """Log that another worker of this machine serves the client from now on."""
        self._end(logging.INFO, f": worker {worker} goes on with it")

    def heartbeats_missed(self, timeout_s: i64) -> None:
        """Log that the peer counts as dead, because it missed its heartbeats."""
        self._end(logging.ERROR, f":\nmissed heartbeats from client, timeout: {timeout_s}s")

    def socket_stuck(self, buffered_bytes: i64, seconds: i64) -> None:
        """Log that the connection is dropped: its client reads nothing and others need the room."""
        text = f":\nclient has not read its socket for {seconds}s, {buffered_bytes} bytes wait for it and others need the room"
        self._end(logging.WARNING, text)

    def _end(self, level: int, reason: str) -> None:
        # Log the end once: after a missed heartbeat, the loss of the socket is reported as well.
        if not self._has_ended:
            self._has_ended = True
            who = self._who()
            logger.log(
                level, "closing AMQP connection %s (%s%s)%s", self._id(), self._name, who, reason
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
    """`text` with control characters escaped, so that a client cannot fake further log lines."""
    return text.translate(_CONTROLS)
