"""Spreads TLS handshakes over the turns of the loop.

The node's part of a handshake costs about a millisecond of CPU (with an RSA key), and it cannot be
interrupted. When hundreds of clients connect at once, a few handshakes a turn leave room for
everybody else.
"""

import asyncio
from collections import deque
from typing import Final

HANDSHAKES_PER_TURN: Final = 2


class HandshakeTurns:
    """A queue of clients whose first bytes have arrived; each turn lets a few pass."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._is_scheduled = False

    async def wait(self) -> None:
        """Return when it is the caller's turn; the caller may also be cancelled."""
        turn: asyncio.Future[None] = self._loop.create_future()
        self._waiting.append(turn)
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._next_turn)
        await turn

    def _next_turn(self) -> None:
        passed = 0
        while self._waiting and passed < HANDSHAKES_PER_TURN:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                passed += 1
        self._is_scheduled = bool(self._waiting)
        if self._is_scheduled:
            self._loop.call_soon(self._next_turn)
