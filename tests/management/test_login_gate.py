"""Unknown logins wait for each other, and nobody else waits for them."""

import asyncio
import threading
from functools import partial

from anyio import to_thread

from tests.support.awaiting import eventually
from warrenmq.management.login_gate import LoginGate


def test_unknown_logins_have_few_threads_of_their_own() -> None:
    started: list[str] = []
    may_end = threading.Event()

    def log_in(user: str) -> str:
        started.append(user)
        assert may_end.wait(60)
        return user

    async def run() -> None:
        gate = LoginGate()
        users = ["a"] * 50 + [f"b{number}" for number in range(80)]
        waiting = [
            asyncio.create_task(gate.run("127.0.0.1", each, partial(log_in, each)))
            for each in users
        ]
        await asyncio.sleep(0)
        await to_thread.run_sync(eventually, lambda: len(started) == 64, "64 log in")
        # The threads of others are free.
        others = [to_thread.run_sync(lambda: len(started)) for _ in range(40)]
        assert await asyncio.gather(*others) == [64] * 40
        assert started.count("a") == 2
        may_end.set()
        assert await asyncio.gather(*waiting) == users

    asyncio.run(run())
