"""`warren server`: configuration, logging, and the node until it stops.

Exit status: 0 after a clean stop, 2 for a configuration that cannot be honoured, otherwise what the node says.
"""

import logging
import sys
from pathlib import Path

from warren.server.config import Config, ConfigError, load

CONFIGURATION_EXIT = 2


def run(
    config_file: Path | None,
    settings: list[str],
    *,
    data_dir: Path | None,
    node: str | None,
    listen: str | None,
    management: str | None,
) -> int:
    """Run a node with this configuration; returns the exit status."""
    try:
        config = load(
            config_file,
            settings=settings,
            data_dir=data_dir,
            node_name=node,
            listen=listen,
            management=management,
        )
    except ConfigError as error:
        print(f"warren: {error}", file=sys.stderr)
        return CONFIGURATION_EXIT
    _log_to_stderr(config)
    # Only here: a wrong flag is answered without loading the broker.
    from warren.server.node import run as run_node

    return run_node(config)


def _log_to_stderr(config: Config) -> None:
    # Standard output carries one thing, the ready line, so that a script can wait for it.
    logging.basicConfig(
        stream=sys.stderr,
        level=config.log_level.upper(),
        format="%(asctime)s [%(levelname)s] %(name)s: %(message)s",
    )
