"""`python -m simulator.workload`: run a workload and record its history.

SIGINT and SIGTERM end the publishing early; the queues are drained all the same. The exit status is
0 if every queue was drained.
"""

from __future__ import annotations

import asyncio
import logging
import signal
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from simulator.checker.events import Ack, Confirm, Delivery, Publish
from simulator.workload.kinds import KINDS
from simulator.workload.settings import WorkloadSettings
from simulator.workload.workload import Workload

console = Console(highlight=False, soft_wrap=True)


def main(
    uri: Annotated[list[str], typer.Option(help="A node; give one for each node.")],
    history: Annotated[Path, typer.Option(help="Where the history goes.")],
    seconds: Annotated[float, typer.Option(help="How long to publish.")] = 20.0,
    queues: Annotated[int, typer.Option(help="How many queues.", min=1)] = 4,
    idle_queues: Annotated[int, typer.Option(help="How many of them have no consumers.")] = 1,
    publishers: Annotated[int, typer.Option(help="How many publishers.")] = 2,
    consumers: Annotated[int, typer.Option(help="How many consumers for each queue.")] = 2,
    rate: Annotated[float, typer.Option(help="Messages per second of each publisher.")] = 200.0,
    drain_limit: Annotated[float, typer.Option(help="Seconds that draining may take.")] = 60.0,
    prefix: Annotated[str, typer.Option(help="Begin of the names of queues.")] = "workload",
    seed: Annotated[int, typer.Option(help="Of sizes, queues and what consumers do.")] = 1,
    kind: Annotated[
        list[str] | None,
        typer.Option(help=f"Of the first queue, the second one and so on: {', '.join(KINDS)}."),
    ] = None,
) -> None:
    """Publish with confirms and consume with acks at several nodes, and record everything."""
    # Lost connections are part of the work; pika would log each of them at length.
    logging.getLogger("pika").setLevel(logging.CRITICAL + 1)
    settings = WorkloadSettings(
        uris=tuple(uri),
        history=history,
        seconds=seconds,
        queues=queues,
        idle_queues=idle_queues,
        publishers=publishers,
        consumers=consumers,
        rate=rate,
        drain_limit_s=drain_limit,
        prefix=prefix,
        seed=seed,
        kinds=tuple(kind or ()),
    )
    if unknown := set(settings.kinds) - KINDS.keys():
        raise typer.BadParameter(f"no such kind of queue: {', '.join(sorted(unknown))}")
    raise typer.Exit(0 if asyncio.run(_run(settings)) else 1)


async def _run(settings: WorkloadSettings) -> bool:
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    workload = Workload(settings)
    is_drained = await workload.run(stop)
    counts = workload.recorder.counts
    console.print(
        f"{counts[Publish]} published, {counts[Confirm]} confirmed, {counts[Delivery]} delivered, "
        f"{counts[Ack]} acked; the history is in {settings.history}",
        markup=False,
    )
    return is_drained


if __name__ == "__main__":
    typer.run(main)
