"""Commands that watch a running node: its events, certificates, environment variables."""

import time
from typing import Final

from warrenmq.admin.protocol import watching
from warrenmq.cli.control.command import Command, Run
from warrenmq.cli.control.exits import bad_argument
from warrenmq.cli.control.formats.output import Output, Table, Text
from warrenmq.cli.control.nodes.status import PURPOSES
from warrenmq.cli.control.objects.listings import GROUP
from warrenmq.cli.control.parsing import Option
from warrenmq.vocabulary.patterns.errors import PatternError
from warrenmq.vocabulary.patterns.pattern import Pattern, compiled

_SETTINGS: Final = "Configuration and environment"
# Longest wait of one request for events (ms).
_WAIT_MS: Final = 5000
_CERTIFICATE_COLUMNS: Final = (
    "cacertfile", "certfile", "expires", "interface", "node", "port", "protocol", "purpose",
)  # fmt: skip


def _certificates(run: Run) -> Output:
    # Imported only here: other commands do not wait for it.
    from warrenmq.admin.client.certificates import expirations, in_words

    listeners = run.ask(watching.DescribeCertificates(), watching.Certificates).listeners

    def ends(pem: str) -> str:
        return "; ".join([in_words(each) for each in expirations(pem)])

    rows = [
        [
            each.trusted, each.certificate, ends(each.certificate), each.interface, run.node, each.port, each.protocol,
            PURPOSES[each.protocol],
        ]
        for each in listeners
    ]  # fmt: skip
    return Table(_CERTIFICATE_COLUMNS, rows, has_maps=True)


def _os_env(run: Run) -> Output:
    values = run.ask(watching.DescribeVariables(), watching.Variables).values
    if run.text("formatter") == "csv":
        return Table(("variable", "value"), [list(pair) for pair in values.items()])
    data = {"node": run.node, "result": "ok", "variables": values}
    return Text("\n".join([f"{name}={value}" for name, value in values.items()]), data)


def _pattern(run: Run) -> Pattern:
    try:
        return compiled(run.text("pattern"))
    except PatternError as error:
        raise bad_argument(f"--pattern: {error}") from None


def _check_pattern(run: Run) -> None:
    _pattern(run)


def _event_stream(run: Run) -> Output:
    """Print events for --duration seconds, or until an interrupt."""
    pattern = _pattern(run)
    run.do(
        watching.WatchEvents(
            names=[name for name in watching.EVENT_NAMES if pattern.is_found_in(name.encode())]
        )
    )
    ends_s = time.monotonic() + run.number("duration") if run.has("duration") else None
    while ends_s is None or time.monotonic() < ends_s:
        left_ms = _WAIT_MS if ends_s is None else int((ends_s - time.monotonic()) * 1000) + 1
        wait_ms = max(0, min(left_ms, _WAIT_MS))
        for line in run.ask(watching.NextEvents(wait_ms=wait_ms), watching.Events).lines:
            print(line)
        print(end="", flush=True)
    return None


COMMANDS: Final = (
    Command(
        "certificates", _SETTINGS, "Shows the certificates of the TLS listeners", _certificates,
        formatter="erlang", banner=lambda run: f"Certificates of node {run.node} ...",
    ),
    Command(
        "consume_event_stream", GROUP, "Shows what happens in the node, one JSON object a line",
        _event_stream, takes_timeout=True, check=_check_pattern,
        options=(
            Option("duration", "integer", "d", "for so long", "seconds"),
            Option("pattern", help="only events whose name has a match of this regular expression"),
        ),
    ),
    Command(
        "os_env", _SETTINGS, "Shows the environment variables that set something in the node",
        _os_env, takes_timeout=True,
        banner=lambda run: (
            f"Listing RabbitMQ-specific environment variables defined on node {run.node}..."
        ),
    ),
)  # fmt: skip
