"""SIGHUP: a running node reads its configuration again and takes what can change.

A configuration with a fault changes nothing. A key that cannot change while the node runs keeps its
value, and one line of the log names all such keys. Values that an administrator has set while the
node ran (a memory limit, say) stay unless their keys have changed in the configuration.
"""

import logging
from dataclasses import fields, replace
from typing import Any, Protocol

from warrenmq.broker.broker import Broker
from warrenmq.server.clock import Clock
from warrenmq.server.config.changes import changed_keys, is_live
from warrenmq.server.config.errors import ConfigError
from warrenmq.server.config.key import RESTART
from warrenmq.server.config.settings import Config, broker_settings
from warrenmq.server.config.sources import Sources
from warrenmq.server.log.output import open_log

logger = logging.getLogger("warren.config")


class ReloadHost(Protocol):
    """The parts of a node that a reload uses."""

    config: Config
    sources: Sources
    broker: Broker
    clock: Clock

    def reload_tls(self) -> str:
        """Read the certificates again; returns why the old ones stay in use, or ""."""


def reload_node(node: ReloadHost) -> None:
    """Read the configuration again and take from it what can change while the node runs."""
    loaded = node.sources.read_again()
    for error in loaded.errors:
        logger.error("configuration not reloaded: %s", error)
    if loaded.errors:
        return
    old = node.config
    new, fixed = merge(old, loaded.config)
    try:
        # Open the log even if its keys are the same: a tool may have renamed the file.
        open_log(new.log)
    except ConfigError as error:
        logger.error("configuration not reloaded: %s", error)
        return
    node.config = new
    if node.reload_tls():
        # A line of the log says why; a later reload sees the change again.
        new = replace(new, tls=old.tls)
        node.config = new
    node.sources.take(new, loaded)
    _apply(node, old, new)
    taken = [key.name for key in changed_keys(old, new)]
    logger.info("configuration reloaded; changed: %s", ", ".join(taken) or "nothing")
    if fixed:
        logger.warning("changes that take effect with a restart only: %s", ", ".join(fixed))


def merge(running: Config, new: Config) -> tuple[Config, list[str]]:
    """`running` with all live keys of `new`, and the names of those that wait for a restart."""
    fixed = []
    taken: dict[str, Any] = {}
    of_broker: dict[str, Any] = {}
    for key in changed_keys(running, new):
        if is_live(key):
            group, _, name = key.field.partition(".")
            if group == "broker":
                of_broker[name] = getattr(new.broker, name)
            else:
                # The keys of every other group of options are all live, or none is.
                taken[group] = getattr(new, group)
        elif key.effect == RESTART:
            fixed.append(key.name)
    return replace(running, broker=replace(running.broker, **of_broker), **taken), fixed


def _apply(node: ReloadHost, old: Config, new: Config) -> None:
    settings = node.broker.settings
    fresh = broker_settings(new, settings.total_memory_bytes)
    for field in fields(settings):
        setattr(settings, field.name, getattr(fresh, field.name))
    node.broker.access.loopback_users = settings.loopback_users
    now_ms = node.clock.now_ms()
    was, now = old.broker, new.broker
    memory = (now.vm_memory_high_watermark_absolute, now.vm_memory_high_watermark_relative)
    if memory != (was.vm_memory_high_watermark_absolute, was.vm_memory_high_watermark_relative):
        node.broker.set_vm_memory_high_watermark(*memory, now_ms)
    disk = (now.disk_free_limit_absolute, now.disk_free_limit_relative)
    if disk != (was.disk_free_limit_absolute, was.disk_free_limit_relative):
        node.broker.set_disk_free_limit(*disk, now_ms)
