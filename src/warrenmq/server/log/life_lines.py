"""The lines of the log that say when a node starts and stops, and why it stops."""

import logging
import os
import time
from datetime import timedelta

import warrenmq
from warrenmq.server.config.settings import Config

logger = logging.getLogger("warren.node")


class LifeLines:
    """The life of one node, which begins now."""

    def __init__(self) -> None:
        self._began_s = time.monotonic()
        self._why = ""

    def starting(self, config: Config, listeners: str) -> None:
        """Log what starts, before anything can go wrong with the data directory.

        `listeners`: the addresses that the node has taken, as in the ready line.
        """
        files = " ".join(str(path.absolute()) for path in config.config_files)
        logger.info(
            "starting warren %s: node %s, pid %d, data directory %s, configuration files %s, "
            "listeners %s",
            warrenmq.__version__,
            config.node_name,
            os.getpid(),
            config.data_dir.absolute(),
            files or "none",
            listeners,
        )

    def stopping(self, why: str) -> None:
        """Log who wants the node to stop."""
        self._why = why
        logger.info("stopping: %s", why)

    def stopped(self) -> None:
        """Log how long the node was up: it has stopped in good order."""
        up = timedelta(seconds=int(time.monotonic() - self._began_s))
        logger.info("stopped after %s: %s", up, self._why)
