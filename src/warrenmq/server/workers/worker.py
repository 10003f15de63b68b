"""The side of a worker: a node that a supervisor has started, as one of several on a machine.

The supervisor writes one line to standard input, the worker's place among the others, and keeps the
pipe open. Its end is the end of the supervisor, and then the worker stops, too.
"""

import logging
import os
import signal
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import msgspec

from warrenmq.server.config.load import Loaded
from warrenmq.server.config.options.cluster import ClusterOptions
from warrenmq.server.config.options.http_listeners import (
    API_PORT,
    API_TLS_PORT,
    METRICS_PORT,
    METRICS_TLS_PORT,
    OFF,
    shifted_port,
)
from warrenmq.server.config.options.log import LogOptions
from warrenmq.server.config.settings import Config
from warrenmq.server.listening.steering import Steering
from warrenmq.server.workers.directories import directory_of

logger = logging.getLogger("warren.workers")

_LOOPBACK: Final = "127.0.0.1"


class WorkerPlace(msgspec.Struct):
    """The place of worker `number` among those with these `names`.

    `etcd_url`, `etcd_user`, `etcd_password`: the supervisor's key-value store, or "" if the
    configuration names an etcd. The listeners have the ports that the supervisor has found.
    """

    number: int
    names: tuple[str, ...]
    etcd_url: str
    etcd_user: str
    etcd_password: str
    tcp_listeners: tuple[tuple[str, int], ...]
    ssl_listeners: tuple[tuple[str, int], ...]
    # The descriptor of the socket by which clients are handed over.
    steering: int = -1


def begin_work() -> WorkerPlace:
    """Read this worker's place, and stop this process when the supervisor has ended."""
    place = msgspec.json.decode(sys.stdin.buffer.readline(), type=WorkerPlace)
    threading.Thread(target=_await_end, name="supervisor", daemon=True).start()
    return place


def _await_end() -> None:
    os.read(sys.stdin.fileno(), 1)
    logger.error("the supervisor has ended, so this worker stops")
    # A node that still starts ends at once; one that runs stops in good order.
    os.kill(os.getpid(), signal.SIGTERM)


def worker_sources(place: WorkerPlace, read: Callable[[], Loaded]) -> Loaded:
    """The configuration that `read` reads, as it is for the worker at `place`."""
    loaded = read()
    if not loaded.errors:
        loaded.config = as_worker(loaded.config, place)
        if "queue_master_locator" not in loaded.in_force:
            # Clients move to their queues, so queues should be spread over the workers.
            cluster = replace(loaded.config.cluster, locator="min-masters")
            loaded.config = replace(loaded.config, cluster=cluster)
    return loaded


def steering_of(place: WorkerPlace) -> Steering:
    """The object that hands clients over to the other workers."""
    others = {
        name.encode(): number for number, name in enumerate(place.names) if number != place.number
    }
    return Steering(place.steering, others)


def as_worker(config: Config, place: WorkerPlace) -> Config:
    """The configuration of the worker at `place`, from that of all."""
    number, count, broker = place.number, len(place.names), config.broker
    absolute = broker.vm_memory_high_watermark_absolute
    worker = replace(
        config,
        broker=replace(
            broker,
            vm_memory_high_watermark_relative=broker.vm_memory_high_watermark_relative / count,
            vm_memory_high_watermark_absolute=absolute // count if absolute > 0 else absolute,
        ),
        data_dir=directory_of(config.data_dir, number),
        node_name=place.names[number],
        cluster=_cluster(config, place),
        tcp_listeners=place.tcp_listeners,
        ssl_listeners=place.ssl_listeners,
        tcp=config.tcp._replace(shares_ports=True),
        # The supervisor has written it.
        pid_file=None,
        # Definitions are shared: what the first worker has imported, all workers have.
        load_definitions=None if number else config.load_definitions,
        log=log_of(config.log, f"worker {number}", str(number) if number else ""),
    )
    return replace(worker, **_http(config, number)) if number else worker


def _cluster(config: Config, place: WorkerPlace) -> ClusterOptions:
    options = config.cluster
    if not place.etcd_url:
        host, port = options.listen
        advertise = options.advertise
        if advertise is not None:
            advertise = (advertise[0], shifted_port(advertise[1], place.number))
        return replace(
            options, listen=(host, shifted_port(port, place.number)), advertise=advertise
        )
    return replace(
        options,
        # As in RabbitMQ, a cluster has the name of its first node.
        name=place.names[0],
        etcd=(place.etcd_url,),
        etcd_username=place.etcd_user,
        etcd_password=place.etcd_password,
        listen=(_LOOPBACK, 0),
        advertise=None,
    )


def log_of(options: LogOptions, writer: str, suffix: str) -> LogOptions:
    """The log of one of several processes: `writer` is in its lines, `suffix` in its file name."""
    file = options.file
    if file is not None and suffix:
        file = file.with_name(f"{file.stem}-{suffix}{file.suffix}")
    return options._replace(file=file, writer=writer)


def _http(config: Config, number: int) -> dict[str, Any]:
    """The API and the metrics of another worker than the first.

    Its API shows nothing that the first one's does not; its metrics are its own, and need both.
    """
    if config.prometheus.is_off:
        return {"management": replace(config.management, listen=OFF)}
    management = replace(
        config.management, http_log_dir=None, statistics_file=None, jobs_directory=None
    )
    return {
        "management": management.shifted(number, API_PORT, API_TLS_PORT),
        "prometheus": config.prometheus.shifted(number, METRICS_PORT, METRICS_TLS_PORT),
    }
