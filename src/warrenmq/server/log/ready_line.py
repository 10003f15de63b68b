"""The line on standard output that says that the broker accepts clients."""

import logging
import os
import sys

logger = logging.getLogger("warren.node")


def announce(line: str) -> None:
    """Write the ready line to standard output, which may be a file on a full disk."""
    try:
        print(line, flush=True)
    except OSError as error:
        logger.warning("the ready line cannot be written: %s", error.strerror)
        # The end of the process would fail with what is left in the buffer.
        with open(os.devnull, "w") as nowhere:
            os.dup2(nowhere.fileno(), sys.stdout.fileno())
