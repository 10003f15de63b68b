"""The states of a connection, in order."""

from typing import Final

STARTING: Final = 0
TUNING: Final = 1
OPENING: Final = 2
RUNNING: Final = 3
CLOSING: Final = 4  # the broker sent connection.close and waits for close-ok
CLOSED: Final = 5  # the broker sends nothing more; the shell closes the socket at `close_at_ms`
STATE_NAMES: Final = ("starting", "tuning", "opening", "running", "closing", "closed")
