"""The process of one worker, from its start to its end."""

import asyncio
import os
import signal
import sys
from typing import Final

import msgspec

from warrenmq.server.listening.steering import Relay
from warrenmq.server.workers.worker import WorkerPlace

_READY: Final = "warren is ready: "


class WorkerProcess:
    """A process that runs `warren server` with `arguments`, at `place`.

    `relay` passes clients on from one worker to another.
    """

    def __init__(self, place: WorkerPlace, arguments: list[str], relay: Relay) -> None:
        self._place = place
        self._relay = relay
        self._arguments = arguments
        self._process: asyncio.subprocess.Process | None = None
        # Whether it has said that it accepts clients.
        self.is_ready = False

    @property
    def number(self) -> int:
        """The worker's number."""
        return self._place.number

    async def start(self) -> str:
        """Start it; returns its ready line without the beginning, "" if it has ended instead."""
        self.is_ready = False
        steering = self._relay.open(self.number)
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "warrenmq", "server", *self._arguments, "--supervised",
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
                pass_fds=(steering,),
            )  # fmt: skip
        finally:
            os.close(steering)
        self._process = process
        place = msgspec.structs.replace(self._place, steering=steering)
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(msgspec.json.encode(place) + b"\n")
        line = (await process.stdout.readline()).decode(errors="replace")
        self.is_ready = line.startswith(_READY)
        return line.removeprefix(_READY).strip() if self.is_ready else ""

    async def wait(self) -> int:
        """Return its exit status when it has ended; a signal is a negative number."""
        assert self._process is not None
        status = await self._process.wait()
        self.is_ready = False
        self._relay.close(self.number)
        return status

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal, if it runs."""
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(number)


def how_it_ended(status: int) -> str:
    """An exit status in words."""
    if status < 0:
        return f"was ended by {signal.Signals(-status).name}"
    return f"has ended with status {status}"
