"""Which failures may pass, and how long they are waited for: one rule for sources, sinks and jobs.

A broker that is away, restarts or cannot store for a moment is *transient*: the same request is repeated until the time-out
of the user is over. Everything else is *permanent* and ends the work at once: a login, a name or a row that is refused now
will be refused again. A host name that does not resolve is transient, because the name of a container goes away with it.

Any exception out of a data source ends the query, and Spark does not restart it; so the waiting is done here.
"""

import logging
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

from warrenmq.admin.client import AdminRefusedError, NodeUnreachableError, OtherBrokerError
from warrenmq.admin.protocol import STORAGE_FAILED

PAUSE_FIRST_S: Final = 0.1
PAUSE_MAX_S: Final = 2.0
# A wait that lasts this long is announced, with its reason.
ANNOUNCE_S: Final = 2.0

_log = logging.getLogger(__name__)


class SourceError(RuntimeError):
    """The stream, the read or the write cannot go on; the text says why and what to do, in one line. Permanent."""


class MayPassError(Exception):
    """Base of the errors that connections of other kinds raise when the same request may succeed a moment later."""


class BrokerAwayError(SourceError):
    """The broker's state made it fail, and the caller must repeat all of it: rows that were consumed cannot be sent again here."""


def is_transient(error: BaseException) -> bool:
    """May the same request succeed a moment later, without anybody changing anything but the broker's state?"""
    if isinstance(error, AdminRefusedError):
        return error.code == STORAGE_FAILED
    if isinstance(error, OtherBrokerError):
        return False
    return isinstance(error, NodeUnreachableError | MayPassError | BrokerAwayError)


def final_error(error: Exception) -> SourceError:
    """The error that a user sees for a permanent failure: one line."""
    if isinstance(error, OtherBrokerError):
        return SourceError(f"{error}; for those of another kind there is the option broker=amqp")
    return error if isinstance(error, SourceError) else SourceError(str(error))


class Retry:
    """Waits for one broker while it is away, for `timeout_s` each time; `option` is the user's name of that, for errors.

    A warning is logged when `attempt` or `failed` was called and nothing has succeeded for ANNOUNCE_S, once each time: a
    connection may hang as well as fail. `pause` is called with seconds, to be replaced by those who can be interrupted.
    As a context manager it takes the warning back at the end.
    """

    def __init__(
        self,
        where: str,
        timeout_s: float,
        option: str,
        pause: Callable[[float], object] = time.sleep,
        pause_max_s: float = PAUSE_MAX_S,
    ) -> None:
        self._where = where
        self._timeout_s = timeout_s
        self._option = option
        self._pause = pause
        self._pause_max_s = pause_max_s
        self._pause_s = PAUSE_FIRST_S
        # When the trouble of now began; None: all is well.
        self._since_s: float | None = None
        self._reason = ""
        self._is_announced = False
        self._announcement: threading.Timer | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.succeeded()

    def attempt(self) -> None:
        """The next step is an attempt to connect."""
        if self._announcement is None and not self._is_announced:
            self._announcement = threading.Timer(ANNOUNCE_S, self._announce)
            self._announcement.daemon = True
            self._announcement.start()

    def connected(self) -> None:
        """The attempt went well; whether the broker does what it is asked for is still to be seen."""
        if self._announcement is not None:
            self._announcement.cancel()
            self._announcement = None

    def failed(self, error: Exception) -> None:
        """Return when it is time for the next attempt. SourceError when `error` is permanent, or the time-out is over."""
        if not is_transient(error):
            self.succeeded()
            raise final_error(error) from None
        self.wait_because(str(error))

    def wait_because(self, reason: str) -> None:
        """Wait as after an exception, for trouble that raised none."""
        self._reason = reason
        now = time.monotonic()
        if self._since_s is None:
            self._since_s = now
        if now + self._pause_s > self._since_s + self._timeout_s:
            self.succeeded()
            raise SourceError(f"given up after {self._timeout_s:g} s ({self._option}): {reason}")
        if now >= self._since_s + ANNOUNCE_S:
            self._announce()
        else:
            self.attempt()
        self._pause(self._pause_s)
        self._pause_s = min(self._pause_s * 2, self._pause_max_s)

    def succeeded(self) -> None:
        """Reset the time-out: the next trouble has all of it."""
        self.connected()
        self._since_s = None
        self._pause_s = PAUSE_FIRST_S
        self._reason = ""
        self._is_announced = False

    def _announce(self) -> None:
        if not self._is_announced:
            self._is_announced = True
            reason = f" ({self._reason})" if self._reason else ""
            _log.warning("waiting for the broker at %s%s", self._where, reason)
