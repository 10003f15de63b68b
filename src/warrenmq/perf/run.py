"""One run from set-up to summary: declares the topology, starts the agents, ends them on time.

`Progress` decides when a run ends. Agents run in this process, or in several forked ones
(`--processes`). CLOCK_MONOTONIC is one clock for all processes of a machine, so latencies hold
across them.
"""

import time
from collections.abc import Callable

from warrenmq.perf.client import Client
from warrenmq.perf.group import AgentGroup, LocalGroup
from warrenmq.perf.loop import CONNECT_TIMEOUT_S, PerfLoop
from warrenmq.perf.options import PerfOptions, parse_uri
from warrenmq.perf.processes import ProcessGroup, deal_agents
from warrenmq.perf.progress import Interval, Progress
from warrenmq.perf.summary import Summary
from warrenmq.perf.topology import declare


def run(options: PerfOptions, on_interval: Callable[[Interval], None]) -> Summary:
    """Run the load that `options` describe; calls `on_interval` for each reporting interval.

    Raises PerfError when the set-up or an agent fails; every socket and process of the run is
    closed then. A keyboard interrupt ends the run early and in good order.
    """
    options.validate()
    client = Client(parse_uri(options.uri), "perf-configuration", CONNECT_TIMEOUT_S)
    try:
        targets = declare(client, options)
    finally:
        client.close()
    shares = deal_agents(options)
    group: AgentGroup
    if len(shares) == 1:
        group = LocalGroup(PerfLoop(options, targets, shares[0].producers, shares[0].consumers))
    else:
        group = ProcessGroup(options, targets, shares)
    progress = Progress(options)
    try:
        drive(group, progress, options, on_interval)
        group.close()
    finally:
        group.abort()
    return Summary(options, progress)


def drive(
    group: AgentGroup,
    progress: Progress,
    options: PerfOptions,
    on_interval: Callable[[Interval], None],
) -> None:
    """Drive the agents until the run is over: start them, add up snapshots, stop the producers."""
    progress.start(time.monotonic_ns())
    group.start_consuming()
    if options.producers > 0:
        progress.start(time.monotonic_ns())
        group.start_publishing(progress.start_ns)
    is_stopped = False
    while not progress.is_over:
        try:
            interval = progress.update(group.run(), time.monotonic_ns())
        except KeyboardInterrupt:
            progress.interrupt()
            continue
        if interval is not None:
            on_interval(interval)
        if progress.producers_ended_ns > 0 and not is_stopped:
            is_stopped = True
            group.stop_publishing()
