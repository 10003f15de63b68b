"""Runs the API and metrics: where the node is, and what is served where."""

import gc
import logging
import os
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

from warrenmq.admin.client.client import LocalAddress, NodeAddress, NodeUnreachableError
from warrenmq.admin.client.control_file import ControlFileError, read_control_file
from warrenmq.management.app import make_app
from warrenmq.management.feed.feed import Feed
from warrenmq.management.jobs.places import JobsDirectory
from warrenmq.management.jobs.records import RUNS_NAME
from warrenmq.management.jobs.runs import CheckWords, Runs
from warrenmq.management.jobs.scheduler import Scheduler
from warrenmq.management.prometheus.pages import make_metrics_app
from warrenmq.management.serving.sites import WARNING, Site, SiteServer
from warrenmq.management.sessions import NodePlace, Sessions
from warrenmq.management.statistics.file import HistoryFile
from warrenmq.management.statistics.statistics import Statistics
from warrenmq.server.config.options.http_listeners import SiteOptions

# Ticks of statistics are so far apart at least.
_INTERVAL_MIN_MS: Final = 1000
# For how long (s) a thread keeps the interpreter while others want it. A request is answered in
# many short turns, each of which waits so long for the thread that builds a list of all queues.
_SWITCH_S: Final = 0.0005


def place_of_uri(uri: str) -> NodePlace:
    """The node of an AMQP URI, which takes admin sessions at the same port.

    Raises ValueError for a URI that cannot be.
    """
    address = NodeAddress(uri)
    return NodePlace(lambda: address)


def place_of_directory(data_dir: Path) -> NodePlace:
    """The node that runs on `data_dir`, as its control file says."""

    def admin() -> LocalAddress:
        try:
            return LocalAddress(read_control_file(data_dir))
        except ControlFileError as error:
            raise NodeUnreachableError(str(error)) from None

    return NodePlace(admin)


async def serve(
    place: NodePlace,
    options: SiteOptions,
    announce: Callable[[str], None],
    check_words: CheckWords,
    is_supervised: bool = False,
) -> None:
    """Serve the API and metrics until SIGTERM or SIGINT.

    `announce` gets one line for each listener once clients can connect, `check_words` looks at the
    command lines of jobs. A supervised process is the child of a node: it ends with its standard
    input, and announces an empty line each second. It runs the jobs of the node.
    """
    sys.setswitchinterval(_SWITCH_S)
    logging.basicConfig(format=f"{WARNING}%(message)s", level=logging.WARNING)
    sessions = Sessions(place)
    server = SiteServer(announce, partial(announce, "") if is_supervised else _no_beat)
    if is_supervised:
        # A node that is killed tells nobody; but the pipe it holds is closed.
        threading.Thread(target=_stop_at_eof, args=[server], daemon=True).start()
    management, metrics = options.management, options.metrics
    interval_ms = max(_INTERVAL_MIN_MS, management.statistics_interval_ms)
    statistics = Statistics(interval_ms)
    history = None
    if management.statistics_file is not None:
        history = HistoryFile(management.statistics_file, statistics)
    runs, scheduler = None, None
    if options.data_dir is not None and management.jobs_directory is not None:
        places = JobsDirectory(management.jobs_directory)
        runs = Runs(options.data_dir / RUNS_NAME, places, place, check_words)
        scheduler = Scheduler(runs, place)
    feed = Feed(place.admin, statistics, interval_ms / 1000)
    # What is imported stays for good. A collection of garbage, in which everybody waits, would look
    # at it each time.
    gc.freeze()
    try:
        await server.serve(
            [
                Site(
                    "the HTTP API is",
                    make_app(sessions, statistics, management, runs),
                    management.api_listeners(),
                    f"{management.path_prefix}/api/",
                    management.max_connections,
                    "management.ssl",
                ),
                Site(
                    "metrics are",
                    make_metrics_app(place, metrics),
                    metrics.metrics_listeners(),
                    metrics.path or "/",
                    management.max_connections,
                    "prometheus.ssl",
                ),
            ]
        )
    finally:
        if runs is not None and scheduler is not None:
            scheduler.end()
            runs.end()
        feed.end()
        if history is not None:
            history.close()
        sessions.close()


def _no_beat() -> None:
    """Nobody waits for beats."""


def _stop_at_eof(server: SiteServer) -> None:
    try:
        while os.read(sys.stdin.fileno(), 4096):
            pass
    finally:
        # A process that cannot see the end of its node must not outlive it.
        server.stop_in_thread()
