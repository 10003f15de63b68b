"""Finds the exceptions that the simulated broker survives."""

from __future__ import annotations

import logging


class CrashWatch(logging.Handler):
    """Collects the exceptions that the broker survives by closing a connection.

    The simulation does not survive them. While the context is entered, the broker's log goes to
    this handler only.
    """

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.errors: list[BaseException] = []
        self._logger = logging.getLogger("warren")
        self._before = (self._logger.propagate, self._logger.level)

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and record.exc_info[1] is not None:
            self.errors.append(record.exc_info[1])

    def __enter__(self) -> None:
        self._before = (self._logger.propagate, self._logger.level)
        self._logger.addHandler(self)
        self._logger.propagate = False
        self._logger.setLevel(logging.ERROR)

    def __exit__(self, *_: object) -> None:
        self._logger.removeHandler(self)
        self._logger.propagate, level = self._before
        self._logger.setLevel(level)

    def check(self) -> None:
        """Raise the last exception that the broker has survived, if there is one."""
        if self.errors:
            error = self.errors.pop()
            self.errors.clear()
            raise error
