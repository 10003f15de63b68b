"""Logins with a password that is not known to be right, few at a time.

A node answers wrong passwords late, so that they are hard to guess, and a thread waits for each
answer. Guesses must not take the threads that serve those who are logged in: unknown logins have
threads of their own, and those of one user from one address only two of them.
"""

from collections.abc import Callable
from typing import Final, TypeVar

from anyio import CapacityLimiter, to_thread

# Threads for all unknown logins, and for those of one user from one address.
_LOGINS_MAX: Final = 64
_OF_ONE_MAX: Final = 2

_Result = TypeVar("_Result")


class LoginGate:
    """Lets unknown logins in, a few at a time; for one event loop."""

    def __init__(self) -> None:
        self._all = CapacityLimiter(_LOGINS_MAX)
        # By address and user, while somebody there logs in or waits for it.
        self._of_one: dict[tuple[str, str], CapacityLimiter] = {}

    async def run(self, address: str, user: str, log_in: Callable[[], _Result]) -> _Result:
        """The result of `log_in`, which a thread calls for `user` at `address`."""
        who = address, user
        own = self._of_one.setdefault(who, CapacityLimiter(_OF_ONE_MAX))
        try:
            async with own:
                return await to_thread.run_sync(log_in, limiter=self._all)
        finally:
            if not own.borrowed_tokens and not own.statistics().tasks_waiting:
                self._of_one.pop(who, None)
