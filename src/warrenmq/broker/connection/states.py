"""The states of a connection, in their order."""

from typing import Final

STARTING: Final = 0
TUNING: Final = 1
OPENING: Final = 2
RUNNING: Final = 3
CLOSING: Final = 4  # connection.close was sent, close-ok is awaited
CLOSED: Final = 5  # nothing more comes from us; the socket goes when its time has come
STATE_NAMES: Final = ("starting", "tuning", "opening", "running", "closing", "closed")
