"""The node's log and its TLS, seen from its machine."""

import time
from collections import deque
from pathlib import Path
from typing import Final

from warrenmq.admin.protocol.log import LogEntries, LogEntry, ReadLog
from warrenmq.cli.control.command import Command, Run
from warrenmq.cli.control.exits import DATA, CommandError
from warrenmq.cli.control.formats.output import Output, Text
from warrenmq.cli.control.nodes.status import node_status
from warrenmq.cli.control.objects.listings import GROUP
from warrenmq.cli.control.parsing import Option

_SETTINGS: Final = "Configuration and environment"
_LINES: Final = 50
_PAUSE_S: Final = 0.1
_MEMORY_PAUSE_S: Final = 0.5
# Entries of one reply of a node.
_ENTRIES_MAX: Final = 1000


def _log_file(run: Run) -> Path | None:
    """The file that the node writes its log to; None if it writes to the console only."""
    files = [name for name in node_status(run).log_files if not name.startswith("<")]
    return Path(files[0]) if files else None


def _read_memory(run: Run, after: int, count: int) -> list[LogEntry]:
    """The newest entries that the node has in memory, the oldest of them first."""
    asked = ReadLog(after=after, limit=min(count, _ENTRIES_MAX))
    return list(reversed(run.ask(asked, LogEntries).entries))


def _line(entry: LogEntry) -> str:
    """An entry as it stands in a log file."""
    line = f"{entry.time} [{entry.level.upper()}] {entry.domain}: {entry.msg}"
    return f"{line}\n{entry.exception}" if entry.exception else line


def _location(run: Run) -> Output:
    files = node_status(run).log_files
    files = files if run.flag("all") else files[:1]
    return Text("\n".join(files), {"paths": files})


def _tail(run: Run) -> Output:
    path, count = _log_file(run), run.number("number", _LINES)
    if path is None:
        return Text("\n".join([_line(entry) for entry in _read_memory(run, 0, count)]))
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            lines = deque(file, maxlen=count)
    except OSError as error:
        raise CommandError(f"Error:\n{path}: {error.strerror}", DATA) from None
    return Text("".join(lines).rstrip("\n"))


def _tail_stream(run: Run) -> Output:
    """Print new lines of the log for --duration seconds, or until an interrupt."""
    path = _log_file(run)
    ends_s = time.monotonic() + run.number("duration") if run.has("duration") else None
    if path is None:
        return _stream_memory(run, ends_s)
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            file.seek(0, 2)
            while ends_s is None or time.monotonic() < ends_s:
                text = file.read()
                if text:
                    print(text, end="", flush=True)
                else:
                    time.sleep(_PAUSE_S)
    except OSError as error:
        raise CommandError(f"Error:\n{path}: {error.strerror}", DATA) from None
    return None


def _stream_memory(run: Run, ends_s: float | None) -> Output:
    """Print new entries of the node's memory until the monotonic time `ends_s`."""
    last = run.ask(ReadLog(limit=1), LogEntries).last
    while ends_s is None or time.monotonic() < ends_s:
        entries = _read_memory(run, last, _ENTRIES_MAX)
        for entry in entries:
            print(_line(entry), flush=True)
            last = entry.number
        if not entries:
            time.sleep(_MEMORY_PAUSE_S)
    return None


def _tls_versions(_run: Run) -> Output:
    import ssl

    names = {"TLSv1_3": "tlsv1.3", "TLSv1_2": "tlsv1.2", "TLSv1_1": "tlsv1.1", "TLSv1": "tlsv1"}
    versions = [shown for name, shown in names.items() if getattr(ssl, f"HAS_{name}")]
    return Text("\n".join(versions), {"versions": versions})


def _cipher_suites(_run: Run) -> Output:
    import ssl

    names = [each["name"] for each in ssl.create_default_context().get_ciphers()]
    return Text("\n".join(names), {"cipher_suites": names, "format": "openssl"})


COMMANDS: Final = (
    Command(
        "cipher_suites", GROUP, "Lists the cipher suites that TLS uses by default", _cipher_suites,
        options=(Option("format", help="openssl, the only format"),), needs="nothing",
        banner=lambda _run: "Listing available cipher suites in OpenSSL format",
    ),
    Command(
        "log_location", _SETTINGS, "Shows where the log is", _location, needs="node",
        options=(Option("all", "flag", "a", "all files"),), takes_timeout=True,
        banner=lambda run: f"Log file location(s) on node {run.node} ...",
    ),
    Command(
        "log_tail", GROUP, "Shows the last lines of the log", _tail, needs="node",
        options=(Option("number", "integer", "N", f"how many (default: {_LINES})"),),
        takes_timeout=True,
        banner=lambda run: (
            f"Last {run.number('number', _LINES)} log lines on node {run.node} ..."
        ),
    ),
    Command(
        "log_tail_stream", GROUP, "Shows new lines of the log as they come", _tail_stream,
        options=(Option("duration", "integer", "d", "for so long", "seconds"),), needs="node",
        takes_timeout=True,
        banner=lambda run: f"Streaming logs from node {run.node} ...",
    ),
    Command(
        "tls_versions", GROUP, "Lists the TLS versions that this installation has", _tls_versions,
        needs="nothing", takes_timeout=True,
        banner=lambda _run: "Listing all TLS versions supported by the runtime...",
    ),
)  # fmt: skip
