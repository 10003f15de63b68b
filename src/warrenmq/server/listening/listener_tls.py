"""The TLS in force on a node's listeners; takes new certificates while the node runs.

New connections use the new files and options; old connections live on. Faulty files change nothing.
"""

import asyncio
import logging
import ssl
from collections.abc import Callable
from typing import Final

from warrenmq.server.config.options.tls import TlsOptions
from warrenmq.server.listening.tls import (
    PeerChains,
    TlsError,
    certificate_texts,
    file_stamps,
    server_context,
)

logger = logging.getLogger("warren.listener")

WATCH_INTERVAL_S: Final = 2.0


class ListenerTls:
    """Raises TlsError when the first options cannot be honoured."""

    def __init__(self, options: TlsOptions) -> None:
        # Of the files as they were last read, even if they were faulty.
        self._stamps = file_stamps(options)
        self.context: ssl.SSLContext = server_context(options)
        self.chains = PeerChains(options.depth)
        # The node's own certificates and the trusted ones, as PEM.
        self.certificates = certificate_texts(options)

    def reload(self, options: TlsOptions) -> str:
        """Read the files again; returns why they cannot be used, or "".

        One line of the log has the outcome.
        """
        self._stamps = file_stamps(options)
        try:
            context = server_context(options)
        except TlsError as error:
            logger.error("the certificates in use stay, because the new ones are faulty: %s", error)
            return str(error)
        self.context = context
        self.chains = PeerChains(options.depth)
        self.certificates = certificate_texts(options)
        logger.info("certificates reloaded: %s", options.certfile)
        return ""

    async def watch(self, options: Callable[[], TlsOptions]) -> None:
        """Reload whenever a file has changed; runs until it is cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(WATCH_INTERVAL_S)
            # A file system that hangs must not stop the loop.
            stamps = await loop.run_in_executor(None, file_stamps, options())
            if stamps != self._stamps:
                self.reload(options())
