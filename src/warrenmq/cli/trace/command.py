"""`warren trace`: one line for each message that is published or delivered, for a while.

Exit status: 0 when it has printed an event, 1 when none came, 2 with one line on standard error
when the node does not answer or refuses, or when the trace cannot go on.
"""

import signal
import sys
import time
from datetime import UTC, datetime
from enum import Enum
from types import FrameType
from typing import Annotated, Final

import typer

from warrenmq.cli.connection import Node, takes_node
from warrenmq.cli.output import fail
from warrenmq.cli.trace.event import DELIVER, PUBLISH, event_of
from warrenmq.cli.trace.filters import KeyPattern, TraceFilter
from warrenmq.cli.trace.firehose import Firehose, TraceError

NOTHING_EXIT: Final = 1
# How soon a signal is noticed (s), and how often the backlog is looked at.
_SLICE_S: Final = 0.2
_BACKLOG_S: Final = 1.0


class Kinds(Enum):
    """The events to print."""

    ALL = "all"
    PUBLISH = "publish"
    DELIVER = "deliver"


class _Signals:
    """Notes the signals that end a run, so that it ends in good order."""

    def __init__(self) -> None:
        self.came = False
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._note)

    def _note(self, _number: int, _frame: FrameType | None) -> None:
        self.came = True


@takes_node
def trace_command(
    node: Node,
    exchange: Annotated[
        str | None, typer.Option(metavar="NAME", help='Messages to this exchange ("": default).')
    ] = None,
    key: Annotated[
        str | None,
        typer.Option(metavar="PATTERN", help="Messages with such a routing key: 'orders.#'."),
    ] = None,
    queue: Annotated[
        str | None, typer.Option(metavar="NAME", help="Messages to or from this queue.")
    ] = None,
    of_user: Annotated[
        str | None,
        typer.Option("--of-user", metavar="NAME", help="What clients of this user publish or get."),
    ] = None,
    of_property: Annotated[
        list[str] | None,
        typer.Option(
            "--property", metavar="NAME=VALUE", help="With this property, such as message_id=7."
        ),
    ] = None,
    header: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="With this header.")
    ] = None,
    events: Annotated[Kinds, typer.Option(help="What to print.")] = Kinds.ALL,
    count: Annotated[int, typer.Option(min=1, help="End after so many events.")] = 100,
    seconds: Annotated[float, typer.Option(min=0, help="End after so many seconds.")] = 60.0,
    body: Annotated[
        int, typer.Option(min=0, metavar="BYTES", help="Print so many bytes of each body.")
    ] = 0,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object for each event.")
    ] = False,
) -> None:
    """Print the messages of a vhost as clients publish and get them, then end.

    Switches the firehose of the vhost on, and off again at the end, also after Ctrl-C or SIGTERM.
    """
    wanted = TraceFilter(
        (PUBLISH, DELIVER) if events is Kinds.ALL else (events.value,),
        exchange,
        None if key is None else KeyPattern(key),
        queue,
        of_user,
        {name.replace("-", "_"): value for name, value in _pairs("--property", of_property)},
        dict(_pairs("--header", header)),
    )
    firehose = Firehose(node.amqp_address, node.admin_address, wanted.binding_keys())
    printed = 0
    try:
        with firehose:
            signals = _Signals()
            firehose.begin()
            state = "" if firehose.switches else ", which was on and stays on"
            print(
                f"warren: tracing vhost '{firehose.vhost}'{state}; ends after {count} events, "
                f"{seconds:g} s or Ctrl-C",
                file=sys.stderr,
                flush=True,
            )
            ends_s = time.monotonic() + seconds
            checked_s = 0.0
            while printed < count and not signals.came:
                now_s = time.monotonic()
                if now_s >= ends_s:
                    break
                if now_s >= checked_s + _BACKLOG_S:
                    firehose.check_backlog()
                    checked_s = now_s
                copy = firehose.next(min(_SLICE_S, ends_s - now_s))
                if copy is None:
                    continue
                event = event_of(copy, datetime.now(UTC).astimezone())
                if wanted.takes(event):
                    print(event.json(body) if as_json else event.line(body), flush=True)
                    printed += 1
            if printed < count:
                firehose.check_backlog()
    except TraceError as error:
        fail(error)
    except OSError:
        # Nobody reads any more: `warren trace | head`, or the terminal is gone.
        return
    if not printed:
        raise typer.Exit(NOTHING_EXIT)


def _pairs(option: str, values: list[str] | None) -> list[tuple[str, str]]:
    """The names and values of an option that may be given several times."""
    pairs = []
    for each in values or ():
        name, equals, value = each.partition("=")
        if not equals or not name:
            fail(f"{option} {each}: write NAME=VALUE")
        pairs.append((name, value))
    return pairs
