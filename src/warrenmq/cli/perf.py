"""`warren perf`: load for any AMQP 0-9-1 broker, with the options and the report lines of PerfTest.

This module has the command line and the printing; `warrenmq.perf` does the work. It also runs as
`python -m warrenmq.cli.perf`. Two differences from PerfTest: without --exchange messages go through
the default exchange, and --drain waits until the published messages are consumed. Exit status: 1
when the run fails, 2 for a wrong option.
"""

import json
import time
from typing import Annotated

import typer

from warrenmq.perf.errors import PerfError
from warrenmq.perf.options import PerfOptions, parse_arguments
from warrenmq.perf.progress import Interval
from warrenmq.perf.run import run
from warrenmq.perf.summary import Summary, latency_figures

AGENTS = "Producers and consumers"
MESSAGES = "Messages"
TOPOLOGY = "Queues and exchanges"
LIMITS = "Limits"
REPORT = "Report"


def perf(
    uri: Annotated[
        str, typer.Option("--uri", "-h", help="amqp[s]://user:password@host:port/vhost")
    ] = "amqp://127.0.0.1",
    producers: Annotated[int, typer.Option("--producers", "-x", rich_help_panel=AGENTS)] = 1,
    consumers: Annotated[int, typer.Option("--consumers", "-y", rich_help_panel=AGENTS)] = 1,
    confirm: Annotated[
        int,
        typer.Option(
            "--confirm",
            "-c",
            rich_help_panel=AGENTS,
            help="use confirms, with at most this many outstanding; 0: no confirms",
        ),
    ] = 0,
    rate: Annotated[
        float,
        typer.Option(
            "--rate",
            "-r",
            rich_help_panel=AGENTS,
            help="messages per second for each producer; 0: no limit",
        ),
    ] = 0.0,
    qos: Annotated[
        int,
        typer.Option("--qos", "-q", rich_help_panel=AGENTS, help="prefetch count; 0: no limit"),
    ] = 0,
    autoack: Annotated[
        bool, typer.Option("--autoack", "-a", rich_help_panel=AGENTS, help="consume without acks")
    ] = False,
    multi_ack_every: Annotated[
        int,
        typer.Option("--multi-ack-every", "-A", rich_help_panel=AGENTS, help="messages per ack"),
    ] = 1,
    write_each_ack: Annotated[
        bool,
        typer.Option(
            "--write-each-ack",
            rich_help_panel=AGENTS,
            help="send each ack by itself, as most clients do, instead of those of a read together",
        ),
    ] = False,
    processes: Annotated[
        int,
        typer.Option(
            "--processes",
            rich_help_panel=AGENTS,
            help="processes that share the producers and consumers",
        ),
    ] = 1,
    size: Annotated[
        int,
        typer.Option(
            "--size",
            "-s",
            rich_help_panel=MESSAGES,
            help="body size in bytes; no latency is measured under 8",
        ),
    ] = 12,
    flag: Annotated[
        list[str] | None,
        typer.Option(
            "--flag", "-f", rich_help_panel=MESSAGES, help="persistent or mandatory; repeatable"
        ),
    ] = None,
    priorities: Annotated[
        int,
        typer.Option(
            "--priorities",
            rich_help_panel=MESSAGES,
            help="priority levels that the batches of messages have in turn; 0: no priority",
        ),
    ] = 0,
    queue: Annotated[
        str,
        typer.Option(
            "--queue",
            "-u",
            rich_help_panel=TOPOLOGY,
            help="queue name (default: the broker names it)",
        ),
    ] = "",
    queue_pattern: Annotated[
        str,
        typer.Option(
            "--queue-pattern",
            rich_help_panel=TOPOLOGY,
            help="name of several queues, such as perf-%d",
        ),
    ] = "",
    queue_pattern_from: Annotated[
        int, typer.Option("--queue-pattern-from", rich_help_panel=TOPOLOGY)
    ] = 1,
    queue_pattern_to: Annotated[
        int, typer.Option("--queue-pattern-to", rich_help_panel=TOPOLOGY)
    ] = 1,
    queue_args: Annotated[
        str,
        typer.Option(
            "--queue-args",
            "-qa",
            rich_help_panel=TOPOLOGY,
            help="queue arguments, such as x-max-length=10,x-queue-mode=lazy",
        ),
    ] = "",
    auto_delete: Annotated[
        bool,
        typer.Option(
            "--auto-delete/--no-auto-delete",
            rich_help_panel=TOPOLOGY,
            help="delete a queue with its last consumer",
        ),
    ] = True,
    exchange: Annotated[
        str,
        typer.Option(
            "--exchange",
            "-e",
            rich_help_panel=TOPOLOGY,
            help="exchange to publish to (default: the default exchange)",
        ),
    ] = "",
    exchange_type: Annotated[
        str, typer.Option("--type", "-t", rich_help_panel=TOPOLOGY)
    ] = "direct",
    routing_key: Annotated[
        str,
        typer.Option(
            "--routing-key",
            "-k",
            rich_help_panel=TOPOLOGY,
            help="routing key (default: the queue's name)",
        ),
    ] = "",
    predeclared: Annotated[
        bool,
        typer.Option(
            "--predeclared",
            "-p",
            rich_help_panel=TOPOLOGY,
            help="use existing queues; declare and bind nothing",
        ),
    ] = False,
    seconds: Annotated[
        float,
        typer.Option("--time", "-z", rich_help_panel=LIMITS, help="seconds to run; 0: no limit"),
    ] = 0.0,
    pmessages: Annotated[
        int,
        typer.Option(
            "--pmessages",
            "-C",
            rich_help_panel=LIMITS,
            help="messages that each producer publishes; 0: no limit",
        ),
    ] = 0,
    cmessages: Annotated[
        int,
        typer.Option(
            "--cmessages",
            "-D",
            rich_help_panel=LIMITS,
            help="messages that each consumer consumes; 0: no limit",
        ),
    ] = 0,
    drain: Annotated[
        float | None,
        typer.Option(
            "--drain",
            rich_help_panel=LIMITS,
            help="seconds to wait until all published messages are consumed (default: 0 with -z, else 30)",
        ),
    ] = None,
    run_id: Annotated[
        str, typer.Option("--id", "-d", rich_help_panel=REPORT, help="name of the run")
    ] = "",
    interval: Annotated[
        float,
        typer.Option(
            "--interval", "-i", rich_help_panel=REPORT, help="seconds between report lines"
        ),
    ] = 1.0,
    as_json: Annotated[
        bool,
        typer.Option(
            "--json", rich_help_panel=REPORT, help="print one JSON object instead of lines"
        ),
    ] = False,
) -> None:
    """Publish and consume as fast as the options allow, and report rates and latencies."""
    try:
        options = PerfOptions(
            uri=uri,
            id=run_id or time.strftime("perf-%H%M%S"),
            producers=producers,
            consumers=consumers,
            queue=queue,
            queue_pattern=queue_pattern,
            queue_pattern_from=queue_pattern_from,
            queue_pattern_to=queue_pattern_to,
            exchange=exchange,
            exchange_type=exchange_type,
            routing_key=routing_key,
            predeclared=predeclared,
            auto_delete=auto_delete,
            queue_args=parse_arguments(queue_args),
            size=size,
            flags=[name for flags in flag or [] for name in flags.split(",")],
            priorities=priorities,
            confirm=confirm,
            rate=rate,
            pmessages=pmessages,
            cmessages=cmessages,
            qos=qos,
            autoack=autoack,
            multi_ack_every=multi_ack_every,
            write_each_ack=write_each_ack,
            time=seconds,
            drain=drain,
            interval=interval,
            processes=processes,
        )
        options.validate()
    except PerfError as error:
        typer.echo(f"warren perf: {error}", err=True)
        raise typer.Exit(2) from None
    printer = IntervalPrinter(options)
    try:
        summary = run(options, printer.ignore if as_json else printer.show)
    except PerfError as error:
        typer.echo(f"warren perf: {error}", err=True)
        raise typer.Exit(1) from None
    if as_json:
        typer.echo(json.dumps(summary.as_json()))
    else:
        show_summary(options, summary)


class IntervalPrinter:
    """Prints one line per interval, without rates that the run cannot have (no consumers)."""

    def __init__(self, options: PerfOptions) -> None:
        self.options = options

    def ignore(self, interval: Interval) -> None:
        """Print nothing: with --json the object at the end has all figures."""

    def show(self, interval: Interval) -> None:
        parts = [f"id: {self.options.id}, time: {interval.end_s:.3f} s"]
        if self.options.producers:
            parts.append(f"sent: {interval.published_rate:.0f} msg/s")
        if self.options.producers and self.options.mandatory:
            parts.append(f"returned: {interval.returned_rate:.0f} msg/s")
        if self.options.producers and self.options.confirm:
            parts.append(
                f"confirmed: {interval.confirmed_rate:.0f} msg/s, nacked: {interval.nacked_rate:.0f} msg/s"
            )
        if self.options.consumers:
            parts.append(f"received: {interval.received_rate:.0f} msg/s")
        parts += latency_parts("consumer", latency_figures(interval.latency))
        parts += latency_parts("confirm", latency_figures(interval.confirm_latency))
        typer.echo(", ".join(parts))


def latency_parts(what: str, figures: dict[str, float]) -> list[str]:
    """The latency part of a report line (µs); empty when nothing was measured."""
    if not figures:
        return []
    values = "/".join(f"{figures[name]:.0f}" for name in ("min", "median", "p75", "p95", "p99"))
    return [f"min/median/75th/95th/99th {what} latency: {values} µs"]


def show_summary(options: PerfOptions, summary: Summary) -> None:
    """Print the averages of the whole run, and whatever qualifies them."""
    prefix = f"id: {options.id}, "
    if options.producers:
        typer.echo(
            f"{prefix}sending rate avg: {summary.publish_rate:.0f} msg/s ({summary.published} messages)"
        )
    if options.consumers:
        typer.echo(
            f"{prefix}receiving rate avg: {summary.receive_rate:.0f} msg/s ({summary.received} messages)"
        )
    for what, figures in (
        ("consumer", summary.latency_us),
        ("confirm", summary.confirm_latency_us),
    ):
        if figures:
            values = "/".join(
                f"{figures[name]:.0f}"
                for name in ("min", "median", "p75", "p95", "p99", "p99_9", "max")
            )
            typer.echo(f"{prefix}{what} latency min/median/75th/95th/99th/99.9th/max {values} µs")
    if summary.nacked or summary.returned:
        typer.echo(f"{prefix}nacked: {summary.nacked}, returned: {summary.returned}")
    if summary.blocked_s > 0:
        typer.echo(f"{prefix}publishers were blocked by the broker for {summary.blocked_s:.1f} s")
    if options.rate:
        typer.echo(
            f"{prefix}publishers were at most {summary.behind_ms_max:.1f} ms behind their rate"
        )
    typer.echo(
        f"{prefix}CPU of the load generator: {summary.generator_cpu_ns_per_message:.0f} ns a message"
    )


if __name__ == "__main__":
    typer.run(perf)
