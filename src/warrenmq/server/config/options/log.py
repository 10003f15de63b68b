"""Where the log goes, from which level on, and in which form."""

import os
from pathlib import Path
from typing import Final, NamedTuple

SYSTEM_LOG_DIR: Final = "/var/log/warren"
LOCAL_LOG_DIR: Final = "warren-log"

# RabbitMQ's levels from the most verbose to silence, with the numbers of `logging`.
LEVELS: Final = {
    "debug": 10,
    "info": 20,
    "notice": 25,
    "warning": 30,
    "error": 40,
    "critical": 50,
    "alert": 60,
    "emergency": 70,
    "none": 100,
}

# RabbitMQ's categories; those without a part of warren's log are accepted and stay silent.
CATEGORIES: Final = (
    "default",
    "connection",
    "channel",
    "queue",
    "mirroring",
    "federation",
    "upgrade",
    "ra",
)


def default_log_dir() -> Path:
    """`/var/log/warren` where it is writable (a package created it), else `./warren-log`."""
    return Path(SYSTEM_LOG_DIR if os.access(SYSTEM_LOG_DIR, os.W_OK) else LOCAL_LOG_DIR)


class LogOptions(NamedTuple):
    """`log.*` of rabbitmq.conf."""

    # Standard error, so that standard output carries only the ready line.
    console: bool = True
    console_level: str = "info"
    console_formatter: str = "plaintext"
    # Name of the log file; a relative one lies in `directory`. None = no file.
    file: Path | None = None
    file_level: str = "info"
    file_formatter: str = "plaintext"
    directory: Path = default_log_dir()
    # Bytes after which a new file begins; 0 = never.
    rotation_size: int = 0
    # When a new file begins, as in `$D0`; "" = never.
    rotation_date: str = ""
    # Older files that are kept.
    rotation_count: int = 0
    # (category, level) of the categories that have a level of their own.
    levels: tuple[tuple[str, str], ...] = ()
    # The process that writes, in each line, if several share an output; "" = only one does.
    writer: str = ""
