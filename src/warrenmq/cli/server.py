"""`warren server`: options, configuration, logging, and the node until it stops.

argparse parses the options, not Typer as in the other commands, because it loads in a tenth of the
time.

Exit status: 0 after a clean stop; 1 when the node cannot start; 2 for a configuration that cannot
be honoured; 3 when the definitions are lost and an operator must decide about the messages.
"""

import argparse
import gc
import logging
import sys
from pathlib import Path

from warrenmq.server.config.errors import ConfigError
from warrenmq.server.config.load import load
from warrenmq.server.config.settings import Config

CONFIGURATION_EXIT = 2


def main(arguments: list[str]) -> int:
    """Run a node with `arguments` (those after `warren server`); returns the exit status."""
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
    # Loading makes no garbage and loaded objects stay, so the collector need not scan them, neither
    # while loading nor later.
    gc.disable()
    # Imported only here: a wrong option is reported without loading the broker.
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
        help="start with empty definitions when they are lost; messages are kept in lost+found",
    )
    return parser


def _log_to_stderr(config: Config) -> None:
    # Standard output carries only the ready line, so that a script can wait for it.
    logging.basicConfig(
        stream=sys.stderr,
        level=config.log_level.upper(),
        format="%(asctime)s [%(levelname)s] %(name)s: %(message)s",
    )
