"""Sends the log where `log.*` of the configuration says, on start, on reload and on rotation."""

import logging
import sys
from datetime import UTC, datetime
from typing import Final

from warrenmq.server.config.errors import ConfigError
from warrenmq.server.config.options.log import LEVELS, LogOptions
from warrenmq.server.log.ring import LogRing

# The loggers of a category; a category that is not here has no part in warren's log.
_LOGGERS: Final = {
    "default": ("warren", "warrenmq"),
    "connection": ("warren.connection", "warren.listener"),
    "channel": ("warren.channel",),
    "queue": ("warren.queue",),
}
_PLAIN_TEXT: Final = "%(asctime)s [%(levelname)s] %(name)s: %(message)s"


def stamp(created_s: float) -> str:
    """`2026-11-28 17:04:28.123456+00:00`, in the time zone of the node.

    `created_s`: seconds since 1970, as in `LogRecord.created`.
    """
    time = datetime.fromtimestamp(created_s, UTC).astimezone()
    return time.isoformat(sep=" ", timespec="microseconds")


class JsonFormatter(logging.Formatter):
    """Formats events with RabbitMQ's names of the fields: time, level, msg, and `domain`.

    With a `writer` there is a field for it.
    """

    def __init__(self, writer: str = "") -> None:
        super().__init__()
        self._writer = writer

    def format(self, record: logging.LogRecord) -> str:
        import json  # Imported late: most logs are plain text.

        fields = {
            "time": stamp(record.created),
            "level": record.levelname.lower(),
            "msg": record.getMessage(),
            "domain": record.name,
        }
        if self._writer:
            fields["process"] = self._writer
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        return json.dumps(fields, ensure_ascii=False)


class _PlainFormatter(logging.Formatter):
    """Formats events as lines of text that begin with the time."""

    def formatTime(  # noqa: N802  # the library's name
        self, record: logging.LogRecord, datefmt: str | None = None
    ) -> str:
        return stamp(record.created)


def open_log(options: LogOptions) -> None:
    """Replace the outputs of the log by those of `options`, files opened anew.

    The ring of the last entries stays. It gets what any output gets, and without outputs the level
    info.

    Raises ConfigError, and leaves the log unchanged, when the file cannot be opened.
    """
    for name in ("notice", "alert", "emergency"):
        logging.addLevelName(LEVELS[name], name.upper())
    handlers: list[logging.Handler] = []
    if options.file is not None:
        handlers.append(_file_handler(options))
    if options.console:
        # Standard output carries only the ready line, so that a script can wait for it.
        handlers.append(
            _prepared(
                logging.StreamHandler(sys.stderr),
                options.console_level,
                options.console_formatter,
                options.writer,
            )
        )
    root = logging.getLogger()
    old = root.handlers
    ring = find_ring() or LogRing()
    ring.setLevel(min([handler.level for handler in handlers], default=LEVELS["info"]))
    root.handlers = [*handlers, ring]
    for handler in old:
        if handler is not ring:
            handler.close()
    root.setLevel(ring.level)
    levels = dict(options.levels)
    for category, names in _LOGGERS.items():
        level = LEVELS[levels[category]] if category in levels else logging.NOTSET
        for name in names:
            logging.getLogger(name).setLevel(level)


def _prepared(
    handler: logging.Handler, level: str, formatter: str, writer: str = ""
) -> logging.Handler:
    handler.setLevel(LEVELS[level])
    if formatter == "json":
        handler.setFormatter(JsonFormatter(writer))
    else:
        place = f"%(name)s: {writer}:" if writer else "%(name)s:"
        handler.setFormatter(_PlainFormatter(_PLAIN_TEXT.replace("%(name)s:", place)))
    return handler


def _file_handler(options: LogOptions) -> logging.Handler:
    # Imported only here: a log without a file does not wait for the library.
    from warrenmq.server.log.file import LogFile

    assert options.file is not None
    path = options.directory / options.file
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handler = LogFile(
            path, options.rotation_size, options.rotation_date, options.rotation_count
        )
    except OSError as error:
        raise ConfigError(f"log.file: {path}: {error.strerror}") from None
    return _prepared(handler, options.file_level, options.file_formatter)


def rotate_log() -> None:
    """Begin a new log file now, whatever its size; no effect on a log without a file."""
    from warrenmq.server.log.file import LogFile

    for handler in logging.getLogger().handlers:
        if isinstance(handler, LogFile):
            handler.doRollover()


def log_files() -> list[str]:
    """The files that the log is written to; `<stderr>` for the console."""
    return [
        handler.baseFilename if isinstance(handler, logging.FileHandler) else "<stderr>"
        for handler in logging.getLogger().handlers
        if isinstance(handler, logging.StreamHandler)
    ]


def find_ring() -> LogRing | None:
    """The ring of the last entries; None before `open_log`."""
    rings = [each for each in logging.getLogger().handlers if isinstance(each, LogRing)]
    return rings[0] if rings else None


def levels_set(options: LogOptions) -> dict[str, str]:
    """The levels that `set_log_level` has put in the place of those of `options`, by key."""
    if find_ring() is None:
        return {}
    configured = {"log.console.level": options.console_level, "log.file.level": options.file_level}
    found = {}
    for handler in logging.getLogger().handlers:
        if isinstance(handler, logging.StreamHandler):
            is_file = isinstance(handler, logging.FileHandler)
            key = "log.file.level" if is_file else "log.console.level"
            if handler.level != LEVELS[configured[key]]:
                found[key] = logging.getLevelName(handler.level).lower()
    for category, level in options.levels:
        for name in _LOGGERS.get(category, ())[:1]:
            if logging.getLogger(name).level != LEVELS[level]:
                lowest = logging.getLevelName(logging.getLogger().level).lower()
                found[f"log.{category}.level"] = lowest
    return found


def set_log_level(level: str) -> None:
    """Log from `level` on in all outputs and categories, until the next `open_log`."""
    root = logging.getLogger()
    root.setLevel(LEVELS[level])
    for handler in root.handlers:
        handler.setLevel(LEVELS[level])
    for names in _LOGGERS.values():
        for name in names:
            logging.getLogger(name).setLevel(logging.NOTSET)
