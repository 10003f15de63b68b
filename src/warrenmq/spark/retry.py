"""Which failures are retried, and for how long: one rule for sources, sinks and jobs.

A failure is *transient* when the broker is away, restarts or cannot store for a moment: the same
request is repeated until the user's time-out expires. Every other failure is *permanent* and ends
the work at once: a refused login, name or row would be refused again. A host name that does not
resolve is transient, because the name of a stopped container does not resolve.

An exception from a data source ends the query, and Spark does not restart the query. All waiting is
therefore done in this module.
"""

import logging
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

from warrenmq.admin.client.client import (
    AdminRefusedError,
    NodeUnreachableError,
    OtherBrokerError,
    TlsRefusedError,
)
from warrenmq.spark.waits import ANNOUNCE_S, Wait
from warrenmq.vocabulary.error_codes import STORAGE_FAILED

PAUSE_FIRST_S: Final = 0.1
PAUSE_MAX_S: Final = 2.0

_log = logging.getLogger("warren.spark")


class SourceError(RuntimeError):
    """A permanent failure of a stream, read or write; one line of text says why and what to do."""


class MayPassError(Exception):
    """Base of other connections' transient errors: the same request may succeed later."""


class BrokerAwayError(SourceError):
    """A transient failure that only the caller can retry, from the first row on.

    Rows that were taken from the iterator cannot be sent again.
    """


def is_transient(error: BaseException) -> bool:
    """Whether the same request may succeed later, when only the broker's state has changed."""
    if isinstance(error, AdminRefusedError):
        return error.code == STORAGE_FAILED
    if isinstance(error, OtherBrokerError | TlsRefusedError):
        return False
    return isinstance(error, NodeUnreachableError | MayPassError | BrokerAwayError)


def final_error(error: Exception) -> SourceError:
    """The error that a user sees for a permanent failure, in one line."""
    if isinstance(error, OtherBrokerError):
        return SourceError(f"{error}; for those of another kind there is the option broker=amqp")
    return error if isinstance(error, SourceError) else SourceError(str(error))


class Retry:
    """Waits for one broker while it is away, up to `timeout_s` seconds for each outage.

    Errors name the timeout as `option`. `attempt` and `failed` start a timer; when nothing succeeds
    for ANNOUNCE_S, a warning is logged once for the outage: a connection may hang as well as fail.
    Until something succeeds it is one of the waits of the process (waits.py).
    Callers that can be interrupted replace `pause`, which takes seconds. Leaving the context
    manager cancels a pending warning.
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
        # When the current outage began (monotonic seconds); None while there is no outage.
        self._since_s: float | None = None
        self._wait: Wait | None = None
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
        """Start the warning timer before an attempt to connect."""
        self._begun()
        if self._announcement is None and not self._is_announced:
            self._announcement = threading.Timer(ANNOUNCE_S, self._announce)
            self._announcement.daemon = True
            self._announcement.start()

    def connected(self) -> None:
        """Stop the warning timer after a connect. The outage lasts on until a request succeeds."""
        if self._announcement is not None:
            self._announcement.cancel()
            self._announcement = None
        if self._since_s is None and self._wait is not None:
            self._wait.end()
            self._wait = None

    def failed(self, error: Exception) -> None:
        """Wait until the next attempt is due.

        Raises SourceError when `error` is permanent or the time-out has expired.
        """
        if not is_transient(error):
            self.succeeded()
            raise final_error(error) from None
        self.wait_because(str(error))

    def wait_because(self, reason: str) -> None:
        """Wait as `failed` does, for a transient failure that raised no exception."""
        self._begun().reason = reason
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
        """End the outage: the next one has the whole time-out again."""
        self._since_s = None
        self.connected()
        self._pause_s = PAUSE_FIRST_S
        self._is_announced = False

    def _announce(self) -> None:
        if not self._is_announced:
            self._is_announced = True
            _log.warning(self._begun().words())

    def _begun(self) -> Wait:
        if self._wait is None:
            self._wait = Wait(f"the broker at {self._where}")
        return self._wait
