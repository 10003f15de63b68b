"""`python -m simulator.simulate`: many histories on all cores, or the story of one.

A failing seed is shrunk and printed as a list of operations, with the disk's part in between;
`--seed N` replays it. `--leaving` runs histories of messages that leave queues by rule, `--cluster`
runs histories of several nodes, `--mirrors` such in which policies mirror the queues.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Callable
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from simulator.cluster.histories import make_cluster_history, make_mirror_history
from simulator.cluster.simulation import (
    ClusterSimulation,
    cluster_story,
    mirror_story,
    run_cluster_seeds,
    run_mirror_seeds,
)
from simulator.histories import make_history
from simulator.leaving.histories import make_leaving_history
from simulator.leaving.simulation import (
    LeavingSimulation,
    leaving_story,
    run_leaving_seeds,
)
from simulator.many_histories import Outcome, run_each
from simulator.shrink import Shrinker, tell
from simulator.simulation import Simulation
from warrenmq.build import build_name

# Seeds that one process takes at a time.
_CHUNK = 20
# Chunks after which a fresh process replaces a process. A node that is dropped amid its work leaves
# its entries in cycles that the collector does not track (see `Entry`); a real node frees them when
# its process ends.
_CHUNKS_PER_PROCESS = 25
# Failing seeds that are shrunk and shown.
_SHOWN = 3

console = Console(highlight=False, soft_wrap=True)

Run = Callable[[range], Outcome]


def run_seeds(seeds: range) -> Outcome:
    """Run the histories of `seeds`."""
    return run_each(seeds, lambda seed: Simulation(make_history(seed)))


def shrunken_story(seed: int) -> list[str]:
    """The story of a failing seed after shrinking, line by line."""
    history = make_history(seed)
    violation = Simulation(history).run()
    if violation is None:
        return [f"seed {seed} holds"]
    shrunken = Shrinker(history, violation.kind).shrink()
    story, violation = tell(shrunken)
    return [*story, f"=> {violation}"]


def _run_many(
    first: int, count: int, processes: int, run: Run, tell_story: Callable[[int], list[str]]
) -> bool:
    chunks = [
        range(start, min(start + _CHUNK, first + count))
        for start in range(first, first + count, _CHUNK)
    ]
    failures: list[tuple[int, str, str]] = []
    crashes = 0
    started = time.monotonic()
    columns = (TextColumn("histories"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with (
        # A process forked while another thread of the pool holds a lock would wait for it forever.
        multiprocessing.get_context("spawn").Pool(
            processes, maxtasksperchild=_CHUNKS_PER_PROCESS
        ) as pool,
        Progress(*columns, console=console, disable=not console.is_terminal) as progress,
    ):
        task = progress.add_task("", total=count)
        for done, crashed, failed in pool.imap_unordered(run, chunks):
            progress.advance(task, done)
            crashes += crashed
            failures += failed
            for seed, kind, _ in failed:
                console.print(f"seed {seed}: {kind}", markup=False)
    seconds = time.monotonic() - started
    console.print(
        f"{count} histories with {crashes} crashes in {seconds:.0f} s ({count / seconds:.0f} a second, "
        f"{processes} processes, {build_name()}): {len(failures)} failed"
    )
    _show_failures(sorted(failures), tell_story)
    return not failures


def _show_failures(
    failures: list[tuple[int, str, str]], tell_story: Callable[[int], list[str]]
) -> None:
    by_kind: dict[str, list[int]] = {}
    for seed, kind, _ in failures:
        by_kind.setdefault(kind, []).append(seed)
    for kind, seeds in by_kind.items():
        console.print(
            f"{len(seeds):6}  {kind}: seeds {', '.join(str(seed) for seed in seeds[:10])}",
            markup=False,
        )
    for seeds in list(by_kind.values())[:_SHOWN]:
        console.rule()
        for line in tell_story(seeds[0]):
            console.print(line, markup=False)


def main(
    seeds: Annotated[int, typer.Option(help="How many histories to run.")] = 1000,
    first: Annotated[int, typer.Option(help="The first seed.")] = 1,
    seed: Annotated[
        int | None, typer.Option(help="Run this one alone, and tell what happens.")
    ] = None,
    processes: Annotated[int, typer.Option(help="How many at a time.")] = os.cpu_count() or 1,
    leaving: Annotated[
        bool, typer.Option(help="Histories of dead letters, limits, expiry and delays.")
    ] = False,
    cluster: Annotated[bool, typer.Option(help="Histories of several nodes.")] = False,
    mirrors: Annotated[
        bool, typer.Option(help="Histories of several nodes with mirrored queues.")
    ] = False,
    shrink: Annotated[bool, typer.Option(help="With --seed: shrink it when it fails.")] = True,
) -> None:
    """Run histories of a simulated node with crashes and disk failures; find broken promises."""
    if seed is None:
        run: Run = run_seeds
        tell_story: Callable[[int], list[str]] = shrunken_story
        if leaving:
            run, tell_story = run_leaving_seeds, leaving_story
        elif cluster:
            run, tell_story = run_cluster_seeds, cluster_story
        elif mirrors:
            run, tell_story = run_mirror_seeds, mirror_story
        is_whole = _run_many(first, seeds, processes, run, tell_story)
    elif leaving:
        is_whole = LeavingSimulation(make_leaving_history(seed)).run() is None
        _print(leaving_story(seed, shrink))
    elif cluster:
        is_whole = ClusterSimulation(make_cluster_history(seed)).run() is None
        _print(cluster_story(seed, shrink))
    elif mirrors:
        is_whole = ClusterSimulation(make_mirror_history(seed)).run() is None
        _print(mirror_story(seed, shrink))
    else:
        is_whole = _tell_one(seed, shrink)
    raise typer.Exit(0 if is_whole else 1)


def _tell_one(seed: int, shrink: bool) -> bool:
    story, violation = tell(make_history(seed))
    if violation is not None and shrink:
        story = shrunken_story(seed)
    elif violation is not None:
        story.append(f"=> {violation}")
    _print(story)
    return violation is None


def _print(story: list[str]) -> None:
    for line in story:
        console.print(line, markup=False)


if __name__ == "__main__":
    typer.run(main)
