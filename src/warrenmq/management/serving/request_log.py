"""A log of requests, in the form that web servers write and RabbitMQ's `http_log_dir` has.

A file an hour: `access.log.2026_11_29_03`. Old files are the administrator's to remove.
"""

import base64
import binascii
import logging
import time
from pathlib import Path
from typing import IO, Final

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

logger = logging.getLogger("warren.management")

_FILE_FORMAT: Final = "access.log.%Y_%m_%d_%H"


class RequestLog:
    """The file of the hour in `directory`, which is made if it is missing."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._name = ""
        self._file: IO[str] | None = None
        # Why the last line was lost, "" if it was not.
        self._fault = ""

    def write(self, line: str) -> None:
        """Append a line; a line that cannot be written is lost, and a warning says so."""
        try:
            self._append(line)
            self._fault = ""
        except OSError as error:
            if self._fault != str(error):
                self._fault = str(error)
                logger.warning("requests are not logged: %s", error)

    def _append(self, line: str) -> None:
        name = time.strftime(_FILE_FORMAT)
        if self._file is None or name != self._name:
            if self._file is not None:
                self._file.close()
            self._directory.mkdir(parents=True, exist_ok=True)
            self._file = (self._directory / name).open("a", buffering=1)
            self._name = name
        self._file.write(f"{line}\n")


class Logged:
    """Middleware that writes a line for each reply."""

    def __init__(self, app: ASGIApp, log: RequestLog) -> None:
        self._app = app
        self._log = log

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Carry out one request."""
        status = size = 0

        async def send_counted(message: Message) -> None:
            nonlocal status, size
            if message["type"] == "http.response.start":
                status = message["status"]
            else:
                size += len(message.get("body", b""))
            await send(message)

        try:
            await self._app(scope, receive, send_counted)
        finally:
            self._log.write(_line(scope, status, size))


def _line(scope: Scope, status: int, size: int) -> str:
    headers = Headers(scope=scope)
    path = scope["raw_path"] + (b"?" + scope["query_string"] if scope["query_string"] else b"")
    first = f"{scope['method']} {path.decode('latin-1')} HTTP/{scope['http_version']}"
    host = scope["client"][0] if scope["client"] else "-"
    date = time.strftime("%d/%b/%Y:%H:%M:%S %z")
    texts = [first, headers.get("referer", ""), headers.get("user-agent", "")]
    quoted, referer, agent = [_quoted(text) for text in texts]
    user = _user(headers.get("authorization", ""))
    return f"{host} - {user} [{date}] {quoted} {status} {size} {referer} {agent}"


def _quoted(text: str) -> str:
    """`text` in quotes; a client cannot begin a line of its own with it."""
    return '"' + text.encode("unicode_escape").decode().replace('"', '\\"') + '"'


def _user(header: str) -> str:
    """The name in a login, `-` for none; whether the login was good, the status says."""
    try:
        login = base64.b64decode(header.partition(" ")[2], validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return "-"
    name = "".join([character for character in login.partition(":")[0] if character.isprintable()])
    return name.replace(" ", "_") or "-"
