"""Makes a `Config` from all sources.

Precedence, weakest first: the defaults of `Config`, the files, the environment, `--set`, the flags.
Each source becomes a list of settings of keys, so that one table of keys checks all of them.
"""

import os
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NamedTuple

from warrenmq.broker.definitions.settings import Settings
from warrenmq.server.config.environment import (
    advanced_file,
    config_files,
    environment_settings,
    only_listener,
    with_conf_env_file,
)
from warrenmq.server.config.errors import ConfigError
from warrenmq.server.config.files import FileReader, files_of, is_classic
from warrenmq.server.config.key import LATER, NEVER, Key
from warrenmq.server.config.keys import DEFINITIONS_KEYS
from warrenmq.server.config.lookup import find_key, member_of
from warrenmq.server.config.options.cluster import ClusterOptions, fault_of
from warrenmq.server.config.options.http_listeners import (
    HttpListener,
    ManagementOptions,
    MetricsOptions,
)
from warrenmq.server.config.options.log import LogOptions
from warrenmq.server.config.options.tcp import TcpOptions
from warrenmq.server.config.options.tls import TlsOptions
from warrenmq.server.config.setting import Setting
from warrenmq.server.config.settings import Config

# Fields of `Config` that hold the options of one subject.
# A group inside another one stands before it.
_GROUPS: Final = {
    "management.tcp": HttpListener,
    "management.ssl": HttpListener,
    "management.tls": TlsOptions,
    "management": ManagementOptions,
    "prometheus.tcp": HttpListener,
    "prometheus.ssl": HttpListener,
    "prometheus.tls": TlsOptions,
    "prometheus": MetricsOptions,
    "broker": Settings,
    "tcp": TcpOptions,
    "tls": TlsOptions,
    "log": LogOptions,
    "cluster": ClusterOptions,
}
_LAST_IN_FILES: Final = (
    "vm_memory_high_watermark.relative",
    "disk_free_limit.relative",
    "listeners.tcp",
    "listeners.ssl",
    "loopback_users",
)

# RabbitMQ's key for the address of the listener for other nodes; ignored, it would leave the node's
# listener open on every address.
_NODE_LINKS_INTERFACE: Final = "distribution.listener.interface"

_REFERENCE: Final = re.compile(r"\$\(([^()]*)\)")
# More keys that refer to one another than any file has: such a chain has no end.
_DEPTH_MAX: Final = 16


def substitute(
    settings: list[Setting], environment: Mapping[str, str], errors: list[str]
) -> list[Setting]:
    """Replace `$(NAME)` by the value of the key NAME, or of the environment variable NAME.

    RabbitMQ 3.10 knows keys only, later versions variables too. A name that is neither is a fault,
    which adds one line to `errors`: otherwise `default_user = $(USER_NAME)` would make a user of
    that very name.
    """
    by_key = {setting.key: setting for setting in settings}
    replaced = []
    for setting in settings:
        try:
            replaced.append(_resolved(setting, by_key, environment, _DEPTH_MAX))
        except ConfigError as error:
            errors.append(setting.blame(str(error)))
    return replaced


def _resolved(
    setting: Setting, by_key: Mapping[str, Setting], environment: Mapping[str, str], depth: int
) -> Setting:
    if setting.is_literal or "$(" not in setting.value:
        return setting

    def text_of(reference: re.Match[str]) -> str:
        name = reference[1]
        if depth == 0:
            raise ConfigError(f"$({name}) refers to itself")
        if name in by_key:
            return _resolved(by_key[name], by_key, environment, depth - 1).value
        if name in environment:
            return environment[name]
        raise ConfigError(
            f"$({name}) is neither a key of the configuration nor an environment variable"
        )

    return setting.with_value(_REFERENCE.sub(text_of, setting.value))


class Flags(NamedTuple):
    """The flags of `warren server`; `settings` are the KEY=VALUE of `--set`."""

    config_file: Path | None = None
    settings: tuple[str, ...] = ()
    data_dir: Path | None = None
    node_name: str | None = None
    listen: str | None = None
    management: str | None = None
    accept_lost_definitions: bool = False
    definitions: Path | None = None
    cluster: str | None = None
    etcd: str | None = None
    cluster_listen: str | None = None
    workers: str | None = None


class Loaded:
    """A configuration with its sources; `config` is of use only when there are no `errors`."""

    def __init__(
        self,
        config: Config,
        in_force: dict[str, Setting],
        errors: list[str],
        warnings: list[str],
    ) -> None:
        self.config = config
        # The setting that is in force, by the full name of its key, weaker sources first.
        self.in_force = in_force
        # One line each, with the place of the fault.
        self.errors = errors
        # One line for all keys that wait for a later version, one for those without effect.
        self.warnings = warnings


def load(
    config_file: Path | None = None,
    environment: Mapping[str, str] | None = None,
    settings: list[str] | None = None,
    *,
    data_dir: Path | None = None,
    listen: str | None = None,
) -> Config:
    """The configuration for these sources. Raises ConfigError with the first fault."""
    flags = Flags(config_file, tuple(settings or ()), data_dir, listen=listen)
    loaded = read_sources(flags, environment)
    if loaded.errors:
        raise ConfigError(loaded.errors[0])
    return loaded.config


def read_sources(flags: Flags, environment: Mapping[str, str] | None = None) -> Loaded:
    """Read all sources; faults are in the result's `errors`.

    Reads nothing but the configuration files and creates nothing.
    """
    errors: list[str] = []
    warnings: list[str] = []
    given = os.environ if environment is None else environment
    environment = with_conf_env_file(given, errors)
    reader = FileReader(errors, warnings)
    settings = _file_settings(flags, environment, reader, errors)
    settings += environment_settings(environment, errors, warnings)
    settings += _flag_settings(flags, errors)
    loaded = _build(substitute(settings, environment, errors))
    loaded.config = replace(loaded.config, config_files=tuple(reader.files))
    loaded.errors[:0] = errors
    loaded.warnings[:0] = warnings
    return loaded


def _file_settings(
    flags: Flags, environment: Mapping[str, str], reader: FileReader, errors: list[str]
) -> list[Setting]:
    """The settings of the files, weaker ones first; classic files are stronger than others."""
    paths = [flags.config_file] if flags.config_file is not None else config_files(environment)
    files: list[Path] = []
    for path in paths:
        try:
            files += files_of(path)
        except ConfigError as error:
            errors.append(str(error))
    settings = [setting for file in files if not is_classic(file) for setting in reader.read(file)]
    # As in RabbitMQ, files that give both forms of a limit mean the relative one, and a list that
    # is `none` stays empty, in whatever order the lines stand.
    settings.sort(key=lambda setting: setting.key in _LAST_IN_FILES)
    classic = [file for file in files if is_classic(file)]
    advanced = advanced_file(environment) or _advanced_beside(paths)
    if advanced is not None and advanced not in classic:
        classic.append(advanced)
    for file in classic:
        settings += reader.read(file)
    _refuse_two_definitions(settings, errors)
    return settings


def _advanced_beside(paths: list[Path]) -> Path | None:
    """The advanced configuration in the directory of the first of `paths`, if there is one."""
    if not paths:
        return None
    directory = paths[0] if paths[0].is_dir() else paths[0].parent
    advanced = directory / "advanced.config"
    return advanced if advanced.is_file() else None


def _refuse_two_definitions(settings: list[Setting], errors: list[str]) -> None:
    """Report files that name different definitions by several keys: RabbitMQ would import all."""
    named = {setting.key: setting for setting in settings if setting.key in DEFINITIONS_KEYS}
    if len({setting.value for setting in named.values()}) > 1:
        first, second, *_ = named.values()
        errors.append(
            second.blame(f"{first.where} names other definitions; name one directory with all")
        )


def _flag_settings(flags: Flags, errors: list[str]) -> list[Setting]:
    settings = []
    for text in flags.settings:
        key, equals, value = text.partition("=")
        if equals:
            settings.append(Setting("--set", key.strip(), value.strip()))
        else:
            errors.append(f"--set {text}: expected KEY=VALUE")
    if flags.data_dir is not None:
        settings.append(Setting("--data-dir", "data_dir", str(flags.data_dir), is_alias=True))
    if flags.node_name is not None:
        settings.append(Setting("--node", "node_name", flags.node_name, is_alias=True))
    for flag, name, given in (
        ("--cluster", "cluster.name", flags.cluster),
        ("--etcd", "cluster.etcd", flags.etcd),
        ("--cluster-listen", "cluster.listen", flags.cluster_listen),
        ("--management", "management.listen", flags.management),
        ("--workers", "workers", flags.workers),
    ):
        if given is not None:
            settings.append(Setting(flag, name, given, is_alias=True))
    if flags.listen is not None:
        settings += only_listener("--listen", flags.listen)
    if flags.definitions is not None:
        settings.append(
            Setting("--definitions", "load_definitions", str(flags.definitions), is_alias=True)
        )
    if flags.accept_lost_definitions:
        settings.append(
            Setting("--accept-lost-definitions", "accept_lost_definitions", "true", is_alias=True)
        )
    return settings


def _build(settings: list[Setting]) -> Loaded:
    """The configuration that `settings`, weaker ones first, add up to."""
    errors = []
    parsed: dict[str, tuple[Setting, Key, object]] = {}
    for setting in settings:
        try:
            key = find_key(setting.key)
        except ConfigError as error:
            errors.append(f"{setting.where}: {error}")
            continue
        try:
            value = key.parse(setting.value)
        except ConfigError as error:
            errors.append(setting.blame(str(error)))
            continue
        # Moves a key that is set again to the end.
        parsed.pop(setting.key, None)
        for overridden in key.overrides:
            parsed.pop(overridden, None)
        # `listeners.tcp = none` puts all members of `listeners.tcp.*` out of force.
        ended = setting.key if setting.value == "none" else setting.replaces
        if ended:
            for name in [name for name in parsed if name.startswith(f"{ended}.")]:
                del parsed[name]
        parsed[setting.key] = (setting, key, value)
    config = _config_of(parsed)
    if config.ssl_listeners and (config.tls.certfile is None or config.tls.keyfile is None):
        setting = next(row[0] for name, row in parsed.items() if name.startswith("listeners.ssl."))
        errors.append(setting.blame("needs ssl_options.certfile and ssl_options.keyfile"))
    for site in ("management", "prometheus"):
        options = getattr(config, site)
        if options.needs_certificate:
            setting = next(row[0] for name, row in parsed.items() if name.startswith(f"{site}."))
            errors.append(setting.blame(f"needs {site}.ssl.certfile and {site}.ssl.keyfile"))
    if fault_of(config.cluster):
        setting = next(row[0] for name, row in parsed.items() if name.startswith("cluster."))
        errors.append(setting.blame(fault_of(config.cluster)))
    interface = parsed.get(_NODE_LINKS_INTERFACE)
    if config.cluster.name and interface is not None and "cluster.listen" not in parsed:
        errors.append(interface[0].blame("has no effect; set cluster.listen = HOST:PORT"))
    return Loaded(config, {name: row[0] for name, row in parsed.items()}, errors, _warnings(parsed))


def _config_of(parsed: dict[str, tuple[Setting, Key, object]]) -> Config:
    values: dict[str, Any] = {}
    members: dict[str, dict[str, object]] = {}
    for name, (_, key, value) in parsed.items():
        if key.collect is not None:
            # The members that are named replace the default of their list.
            of_field = members.setdefault(key.field, {})
            of_field[member_of(key, name)] = value
            values[key.field] = key.collect(of_field)
        elif key.field:
            members[key.field] = {}
            values[key.field] = value
            values |= key.implies
    for group, options in _GROUPS.items():
        inner = [name for name in values if name.startswith(f"{group}.")]
        if inner:
            values[group] = options(
                **{name.removeprefix(f"{group}."): values.pop(name) for name in inner}
            )
    return Config(**values)


def _warnings(parsed: dict[str, tuple[Setting, Key, object]]) -> list[str]:
    lines = []
    for effect, text in (
        (LATER, "these keys are checked but wait for a later version of warren: "),
        (NEVER, "these keys are accepted without effect: "),
    ):
        names = [name for name, (_, key, _) in parsed.items() if key.effect == effect]
        if names:
            lines.append(text + ", ".join(names))
    return lines
