"""The listener for commands on the node's machine, and the control file that names it.

It listens on a loopback port of its own, so that local commands need no TLS and no PROXY header and
reach the node whatever its other listeners are. The management process declares, publishes and gets
over AMQP here, in the name of its callers.
"""

import asyncio
import logging
import secrets
import socket
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

from warrenmq.admin.client.control_file import ControlFile, remove_control_file, write_control_file
from warrenmq.server.listening.addresses import Ends, ends_of
from warrenmq.store.disk.space_reserve import SpaceReserve

logger = logging.getLogger("warren.listener")

_TOKEN_BYTES: Final = 32

NewProtocol = Callable[[Ends], asyncio.BufferedProtocol]


class ControlListener:
    """Listens for the commands of `data_dir`'s owner; `new_protocol` makes a client's protocol."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, data_dir: Path, new_protocol: NewProtocol
    ) -> None:
        self._loop = loop
        self._data_dir = data_dir
        self._new_protocol = new_protocol
        self._socket: socket.socket | None = None
        # The control file, until it is written.
        self._unwritten: ControlFile | None = None
        # The secret that a local administrator must show.
        self.token = secrets.token_urlsafe(_TOKEN_BYTES)

    def start(self, node: str, pid: int, reserve: SpaceReserve) -> None:
        """Listen, and write the control file, on a full disk with the help of the `reserve`.

        Raises OSError when it cannot listen, or cannot remove the control file of an earlier run.
        """
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._socket.setblocking(False)
        host, port = self._socket.getsockname()
        self._unwritten = ControlFile(node, f"{host}:{port}", self.token, pid)
        self._loop.add_reader(self._socket, self._accept)
        # A killed node has left its control file, whose room the new one takes.
        remove_control_file(self._data_dir)
        if not self.keep(reserve):
            logger.error("local commands cannot find the node yet: the disk takes no control file")

    def keep(self, reserve: SpaceReserve) -> bool:
        """Write the control file if that is still to be done; call it now and then.

        A node must start on a full disk too. Returns whether the file is there.
        """
        unwritten = self._unwritten
        if unwritten is None:
            return True
        try:
            reserve.helps(lambda: write_control_file(self._data_dir, unwritten))
        except OSError:
            return False
        self._unwritten = None
        return True

    def close(self) -> None:
        """Remove the control file and close the listener; sessions go on."""
        if self._socket is not None:
            self._unwritten = None
            remove_control_file(self._data_dir)
            self._loop.remove_reader(self._socket)
            self._socket.close()
            self._socket = None

    def _accept(self) -> None:
        assert self._socket is not None
        try:
            client, _ = self._socket.accept()
            ends = ends_of(client)
        except OSError:
            # The client left, or the system has no room for one more socket: it tries again.
            return
        client.setblocking(False)
        self._loop.create_task(self._welcome(client, ends))

    async def _welcome(self, client: socket.socket, ends: Ends) -> None:
        await self._loop.connect_accepted_socket(partial(self._new_protocol, ends), client)
