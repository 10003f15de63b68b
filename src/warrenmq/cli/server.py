"""`warren server`: options, configuration, logging, and the node until it stops.

The options are argparse's, unlike those of the other commands: it loads in a tenth of the time.

Exit status: 0 after a clean stop, 2 for a configuration that cannot be honoured, 1 when the node cannot start, 3 when
its definitions are lost and somebody must decide what comes of the messages.
"""

import argparse
import gc
import logging
import sys
from pathlib import Path

from warrenmq.server.config import Config, ConfigError, load

CONFIGURATION_EXIT = 2


def main(arguments: list[str]) -> int:
    """Run a node as `arguments` (those behind `warren server`) say; returns the exit status."""
    options = _parser().parse_args(arguments)
    try:
        config = load(
            options.config,
            settings=options.settings,
            data_dir=options.data_dir,
            node_name=options.node,
            listen=options.listen,
            management=options.management,
            accept_lost_definitions=options.accept_lost_definitions,
        )
    except ConfigError as error:
        print(f"warren: {error}", file=sys.stderr)
        return CONFIGURATION_EXIT
    _log_to_stderr(config)
    # Loading makes no garbage, and what is loaded stays: the collector need not look at it, now or later.
    gc.disable()
    # Only here: a wrong flag is answered without loading the broker.
    from warrenmq.server.node import run as run_node

    gc.freeze()
    gc.enable()
    return run_node(config)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="warren server",
        description="Run a broker until SIGTERM or Ctrl-C.",
        allow_abbrev=False,
    )
    add = parser.add_argument
    add(
        "--config",
        type=Path,
        metavar="FILE",
        help="rabbitmq.conf's format, or a directory of *.conf",
    )
    add(
        "--data-dir",
        type=Path,
        metavar="DIR",
        help="where everything durable lies (default: ./warren-data or /var/lib/warren)",
    )
    add("--node", metavar="NAME", help="node name (default: warren@HOST)")
    add(
        "--listen",
        metavar="HOST:PORT",
        help="AMQP listener; port 0 takes a free one (default: every address, 5672)",
    )
    add("--management", metavar="HOST:PORT", help="management listener, or off (default: off)")
    add(
        "--set",
        dest="settings",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="set a key of the configuration file; repeatable",
    )
    add(
        "--accept-lost-definitions",
        action="store_true",
        help="start anew when the definitions are lost and messages are there, which are kept in lost+found",
    )
    return parser


def _log_to_stderr(config: Config) -> None:
    # Standard output carries one thing, the ready line, so that a script can wait for it.
    logging.basicConfig(
        stream=sys.stderr,
        level=config.log_level.upper(),
        format="%(asctime)s [%(levelname)s] %(name)s: %(message)s",
    )
