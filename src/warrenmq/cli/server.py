"""`warren server`: options, configuration, logging, and the node until it stops.

argparse parses the options, not Typer as in the other commands, because it loads in a tenth of the
time.

Exit status: 0 after a clean stop; 1 when the node cannot start; 2 for a configuration that cannot
be honoured; 3 when the definitions are lost and an operator must decide about the messages.
"""

import argparse
import contextlib
import gc
import logging
import os
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from warrenmq.offline.data_directory import WORKERS_NAME
from warrenmq.server.config.errors import ConfigError
from warrenmq.server.config.load import Flags, read_sources
from warrenmq.server.config.sources import Sources
from warrenmq.server.log.output import open_log

CONFIGURATION_EXIT = 2

logger = logging.getLogger("warren.config")


def main(arguments: list[str]) -> int:
    """Run a node with `arguments` (those after `warren server`); returns the exit status."""
    options = server_parser().parse_args(arguments)
    read = partial(read_sources, flags_of(options))
    place = None
    if options.supervised:
        # Imported only here, and below: most nodes have no supervisor.
        from warrenmq.server.workers.worker import begin_work, steering_of, worker_sources

        place = begin_work()
        read = partial(worker_sources, place, read)
    loaded = read()
    if loaded.errors:
        return _refuse(loaded.errors[0])
    config = loaded.config
    if place is None and (config.workers or (config.data_dir / WORKERS_NAME).is_dir()):
        from warrenmq.server.workers.supervisor import supervise

        with _pid_file(config.pid_file):
            return supervise(config, read, arguments)
    try:
        open_log(config.log)
    except ConfigError as error:
        return _refuse(str(error))
    for warning in loaded.warnings:
        logger.warning("%s", warning)
    # Loading makes no garbage and loaded objects stay, so the collector need not scan them, neither
    # while loading nor later.
    gc.disable()
    # Imported only here: a wrong option is reported without loading the broker.
    from warrenmq.server.node import run as run_node

    gc.freeze()
    gc.enable()
    try:
        with _pid_file(config.pid_file):
            steering = None if place is None else steering_of(place)
            return run_node(config, Sources(loaded.in_force, read), steering)
    except ConfigError as error:
        return _refuse(str(error))


def _refuse(error: str) -> int:
    print(f"warren: {error}", file=sys.stderr)
    return CONFIGURATION_EXIT


@contextlib.contextmanager
def _pid_file(path: Path | None) -> Iterator[None]:
    """Keep the process id in `path` while the node runs. Raises ConfigError."""
    if path is None:
        yield
        return
    try:
        path.write_text(f"{os.getpid()}\n")
    except OSError as error:
        raise ConfigError(f"pid_file: {path}: {error.strerror}") from None
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


def flags_of(options: argparse.Namespace) -> Flags:
    """The flags among the parsed options of `server_parser`."""
    return Flags(
        options.config,
        tuple(options.settings),
        options.data_dir,
        options.node,
        options.listen,
        options.management,
        options.accept_lost_definitions,
        options.definitions,
        options.cluster,
        options.etcd,
        options.cluster_listen,
        options.workers,
    )


def server_parser() -> argparse.ArgumentParser:
    """Parser of the options of `warren server`."""
    parser = argparse.ArgumentParser(
        prog="warren server",
        description="Run a broker until SIGTERM or Ctrl-C.",
        allow_abbrev=False,
    )
    add_configuration_options(parser)
    # For the processes that a supervisor starts.
    parser.add_argument("--supervised", action="store_true", help=argparse.SUPPRESS)
    return parser


def add_configuration_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that choose a configuration."""
    add = parser.add_argument
    add(
        "--config",
        type=Path,
        metavar="FILE",
        help="file in rabbitmq.conf's format, or a directory of *.conf files",
    )
    add(
        "--data-dir",
        type=Path,
        metavar="DIR",
        help="directory of all durable data (default: /var/lib/warren if writable, else ./warren-data)",
    )
    add("--node", metavar="NAME", help="node name (default: warren@HOST)")
    add(
        "--listen",
        metavar="HOST:PORT",
        help="AMQP listener; port 0: any free port (default: every address, 5672)",
    )
    add("--cluster", metavar="NAME", help="run as a node of this cluster; needs --etcd")
    add("--etcd", metavar="URL[,URL]", help="client URLs of the etcd that has its definitions")
    add(
        "--cluster-listen",
        metavar="HOST:PORT",
        help="listener for the other nodes (default: every address, 25672)",
    )
    add(
        "--workers",
        metavar="N",
        help="run N nodes as processes that share the listeners, each on a core of its own",
    )
    add(
        "--management",
        metavar="HOST:PORT",
        help="listener of the HTTP API, or off (default: 127.0.0.1:15672 if the extra management is installed)",
    )
    add(
        "--set",
        dest="settings",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="set a key of the configuration file; repeatable",
    )
    add(
        "--definitions",
        type=Path,
        metavar="FILE",
        help="import these definitions at the start: a file, or a directory of *.json files",
    )
    add(
        "--accept-lost-definitions",
        action="store_true",
        help="start with empty definitions when they are lost; messages are kept in lost+found",
    )
