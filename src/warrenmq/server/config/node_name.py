"""The name of a node: `name@host`."""

import os
import re

from warrenmq.server.config.errors import ConfigError


def node_name(text: str) -> str:
    """The node name of `text`; a bare name gets this machine's host name. Raises ConfigError."""
    name = text if "@" in text else f"{text}@{_short_host_name()}"
    if not re.fullmatch(r"[\w.-]+@[\w.-]+", name, re.ASCII):
        raise ConfigError(
            f"{text!r} is not a node name; letters, digits, _ . - and one @ may be used"
        )
    return name


def default_node_name() -> str:
    """`warren@` and this machine's host name."""
    return f"warren@{_short_host_name()}"


def _short_host_name() -> str:
    # A start checks its options before it imports `socket`.
    return os.uname().nodename.partition(".")[0] or "localhost"
