"""Makes guessing passwords slow, and keeps refused logins from filling the log.

Refused logins are remembered by source address, by user, and by both together. After some of them
the answer to a login comes late, and later with each further one:

* A wrong password is answered late because of its address, of its user, or of both.
* The right password is answered late only because of refused logins of the same user from the same
  address. So nobody can keep a user out from elsewhere, nor other users of the same address.

The caller waits without holding up anybody. A user that does not exist counts like one that does.
What is remembered fades: it halves in `_HALF_LIFE_MS`.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

# Refused logins that cost nothing: people mistype, and services restart with an old password.
FREE_FAILURES: Final = 5
# The longest wait (ms). It ends before a handshake times out (10 s).
WAIT_MAX_MS: Final = 5000
_HALF_LIFE_MS: Final = 60_000
# Entries of one table. When it is full, the oldest one is forgotten.
TABLE_MAX: Final = 10_000

# Lines of the log about one address in one interval.
LINES_MAX: Final = 5
LINES_INTERVAL_MS: Final = 10_000
# Addresses with lines in the log that are counted apart from all others.
_ADDRESSES_MAX: Final = 1000


class _Failures:
    """A count of refused logins that fades with time, as it was at `at_ms`."""

    def __init__(self) -> None:
        self.count: float = 0.0
        self.at_ms: i64 = 0

    def count_at(self, now_ms: i64) -> float:
        elapsed: float = float(max(i64(0), now_ms - self.at_ms))
        faded: float = self.count * 2.0 ** (-elapsed / _HALF_LIFE_MS)
        return faded


class _FailureTable:
    """Refused logins by something that they have in common."""

    def __init__(self) -> None:
        # The entry that changed last is the last one.
        self._failures: dict[bytes, _Failures] = {}

    def add(self, key: bytes, now_ms: i64) -> None:
        failures = self._failures.pop(key, None)
        if failures is None:
            failures = _Failures()
            if len(self._failures) >= TABLE_MAX:
                del self._failures[next(iter(self._failures))]
        failures.count = failures.count_at(now_ms) + 1.0
        failures.at_ms = now_ms
        self._failures[key] = failures

    def forget(self, key: bytes) -> None:
        self._failures.pop(key, None)

    def wait_ms(self, key: bytes, now_ms: i64) -> i64:
        failures = self._failures.get(key)
        return 0 if failures is None else wait_after(failures.count_at(now_ms))


class _Lines:
    """Lines of the log about the refused logins of one address."""

    def __init__(self, now_ms: i64) -> None:
        self.until_ms: i64 = now_ms + LINES_INTERVAL_MS
        self.count: i64 = 0


class LoginGuard:
    """The refused logins that a node remembers; times in ms."""

    def __init__(self) -> None:
        self._by_address: _FailureTable = _FailureTable()
        self._by_user: _FailureTable = _FailureTable()
        self._by_both: _FailureTable = _FailureTable()
        self._lines: dict[str, _Lines] = {}

    def on_success(self, address: str, user: bytes, now_ms: i64) -> i64:
        """Note a login that is granted; returns how long its answer has to wait (ms)."""
        key = _both(address, user)
        wait_ms = self._by_both.wait_ms(key, now_ms)
        self._by_both.forget(key)
        return wait_ms

    def on_failure(self, address: str, user: bytes, now_ms: i64) -> i64:
        """Note a login that is refused; returns how long its answer has to wait (ms)."""
        wait_ms: i64 = 0
        for table, key in (
            (self._by_address, address.encode()),
            (self._by_user, user),
            (self._by_both, _both(address, user)),
        ):
            table.add(key, now_ms)
            wait_ms = max(wait_ms, table.wait_ms(key, now_ms))
        return wait_ms

    def may_log(self, address: str, now_ms: i64) -> bool:
        """Whether a refused login from `address` gets a line of its own in the log.

        `summaries` reports how many did not.
        """
        if address not in self._lines and len(self._lines) >= _ADDRESSES_MAX:
            address = "other addresses"
        lines = self._lines.get(address)
        if lines is None:
            lines = _Lines(now_ms)
            self._lines[address] = lines
        lines.count += 1
        return lines.count <= LINES_MAX

    def summaries(self, now_ms: i64) -> list[str]:
        """Lines for the log about the refused logins that got none; to be called now and then."""
        texts: list[str] = []
        if len(self._lines) == 0:
            return texts
        for address in [key for key in self._lines if self._lines[key].until_ms <= now_ms]:
            unlogged = self._lines.pop(address).count - LINES_MAX
            if unlogged > 0:
                seconds = LINES_INTERVAL_MS // 1000
                texts.append(f"{unlogged} more logins from {address} refused within {seconds} s")
        return texts


def source_address(peer: str) -> str:
    """The client's address in a connection's name, `HOST:PORT -> HOST:PORT`."""
    return peer.partition(" -> ")[0].rpartition(":")[0] or peer


def wait_after(failures: float) -> i64:
    """How long the answer to a login waits (ms) after so many refused ones."""
    above: i64 = i64(int(failures)) - FREE_FAILURES
    if above <= 0:
        return 0
    return min(i64(1000) << min(above - 1, i64(3)), i64(WAIT_MAX_MS))


def _both(address: str, user: bytes) -> bytes:
    return address.encode() + b"\x00" + user
