"""The commands of `rabbitmq-plugins`, for scripts that enable plug-ins of RabbitMQ.

A node has no plug-ins: it has what some of them do built in, and nothing of the others. Commands
that enable or disable end as RabbitMQ's do, and say on standard error which plug-ins they left.
"""

import re
import sys
from collections.abc import Iterable
from typing import Any, Final

from warrenmq.cli.control.command import Command, Run
from warrenmq.cli.control.exits import DATA, SOFTWARE, CommandError, UsageError, bad_argument
from warrenmq.cli.control.formats.output import Output, Text
from warrenmq.cli.control.objects.listings import GROUP as MONITORING
from warrenmq.cli.control.parsing import Option
from warrenmq.vocabulary.rabbitmq_version import RABBITMQ_VERSION

_GROUP: Final = "Plugin Management"
# Plug-ins whose function every node has.
_BUILT_IN: Final = (
    "rabbitmq_auth_mechanism_ssl", "rabbitmq_consistent_hash_exchange",
    "rabbitmq_delayed_message_exchange", "rabbitmq_random_exchange",
)  # fmt: skip
# Plug-ins of RabbitMQ's distribution whose function no node has.
_ABSENT: Final = (
    "rabbitmq_amqp1_0", "rabbitmq_auth_backend_cache", "rabbitmq_auth_backend_http",
    "rabbitmq_auth_backend_ldap", "rabbitmq_auth_backend_oauth2", "rabbitmq_event_exchange",
    "rabbitmq_federation", "rabbitmq_federation_management", "rabbitmq_jms_topic_exchange",
    "rabbitmq_management", "rabbitmq_management_agent", "rabbitmq_mqtt",
    "rabbitmq_peer_discovery_aws", "rabbitmq_peer_discovery_common",
    "rabbitmq_peer_discovery_consul", "rabbitmq_peer_discovery_etcd", "rabbitmq_peer_discovery_k8s",
    "rabbitmq_prometheus", "rabbitmq_recent_history_exchange", "rabbitmq_sharding",
    "rabbitmq_shovel", "rabbitmq_shovel_management", "rabbitmq_stomp", "rabbitmq_stream",
    "rabbitmq_stream_management", "rabbitmq_top", "rabbitmq_tracing", "rabbitmq_trust_store",
    "rabbitmq_web_dispatch", "rabbitmq_web_mqtt", "rabbitmq_web_mqtt_examples",
    "rabbitmq_web_stomp", "rabbitmq_web_stomp_examples",
)  # fmt: skip
_KNOWN: Final = sorted([*_BUILT_IN, *_ABSENT])
_MODES: Final = (
    Option("offline", "flag", help="accepted, has no effect"),
    Option("online", "flag", help="accepted, has no effect"),
)
_ALL: Final = Option("all", "flag", help="all plug-ins")


def _unknown(names: Iterable[str]) -> list[str]:
    return [name for name in names if name not in _KNOWN]


def _warn(names: Iterable[str], text: str) -> None:
    found = ", ".join(names)
    if found:
        print(f"warning: {text}: {found}", file=sys.stderr)


# -- list ------------------------------------------------------------------------------------------


def _list(run: Run) -> Output:
    pattern = _pattern(run)
    is_of_enabled = run.flag("enabled") or run.flag("implicitly-enabled")
    names = [name for name in (_BUILT_IN if is_of_enabled else _KNOWN) if pattern.search(name)]
    data = {
        "format": "minimal" if run.flag("minimal") else "normal",
        "plugins": names if run.flag("minimal") else [_entry(name) for name in names],
        "status": "running",
    }
    return Text("\n".join(_lines(run, names)), data)


def _lines(run: Run, names: list[str]) -> list[str]:
    if run.flag("minimal"):
        return names
    width = max([len(name) for name in names], default=0)
    rows = [f"[{_mark(name)}] {name:{width}} {RABBITMQ_VERSION}" for name in names]
    if run.is_quiet:
        return rows
    return [
        " Configured: E = explicitly enabled; e = implicitly enabled",
        f" | Status: * = running on {run.node}",
        " |/",
        *rows,
    ]


def _mark(name: str) -> str:
    return "E*" if name in _BUILT_IN else "  "


def _entry(name: str) -> dict[str, Any]:
    is_on = name in _BUILT_IN
    return {
        "enabled": "enabled" if is_on else "not_enabled",
        "name": name,
        "running": is_on,
        "running_version": RABBITMQ_VERSION if is_on else None,
        "version": RABBITMQ_VERSION,
    }


def _pattern(run: Run) -> re.Pattern[str]:
    try:
        return re.compile(run[0] if run.arguments else ".*")
    except re.error as error:
        raise bad_argument(f"pattern: {error}") from None


def _check_pattern(run: Run) -> None:
    _pattern(run)


# -- enable and disable ----------------------------------------------------------------------------


def _check_names(run: Run) -> None:
    if not run.arguments and not run.flag("all"):
        raise UsageError("not enough arguments.")


def _enable(run: Run) -> Output:
    unknown = _unknown(run.arguments)
    if unknown:
        raise CommandError(f"Error:\nplugins_not_found: {', '.join(unknown)}", SOFTWARE)
    return _unchanged(run, _ABSENT if run.flag("all") else run.arguments)


def _set(run: Run) -> Output:
    unknown = _unknown(run.arguments)
    if unknown:
        text = f"Error:\nThe following plugins were not found: {', '.join(unknown)}"
        raise CommandError(text, DATA)
    kept = [name for name in _BUILT_IN if name not in run.arguments]
    _warn(kept, "built into the node, and not disabled")
    return _unchanged(run, run.arguments)


def _disable(run: Run) -> Output:
    kept = [name for name in _BUILT_IN if run.flag("all") or name in run.arguments]
    _warn(kept, "built into the node, and not disabled")
    return _unchanged(run, ())


def _unchanged(run: Run, wanted: Iterable[str]) -> Output:
    absent = [name for name in wanted if name in _ABSENT]
    _warn(absent, "not available in warren, and not enabled")
    data = {"node": run.node, "result": "ok", "enabled": list(_BUILT_IN), "unavailable": absent}
    lines = [f"Applying plugin configuration to {run.node}...", "Plugin configuration unchanged."]
    return Text("\n".join(lines), data)


def _is_enabled(run: Run) -> Output:
    missing = [name for name in run.arguments if name not in _BUILT_IN]
    if missing:
        raise CommandError(
            f"Error:\n{_named(missing)} {_are(missing)} not enabled on node {run.node}. "
            f"Enabled plugins and dependencies: {', '.join(_BUILT_IN)}"
        )
    text = f"{_named(run.arguments)} {_are(run.arguments)} enabled on node {run.node}"
    return Text(text, {"message": text, "result": "ok"})


def _is_enabled_banner(run: Run) -> str:
    named = _named(run.arguments)
    return (
        f"Asking node {run.node} if {named[0].lower()}{named[1:]} {_are(run.arguments)} enabled..."
    )


def _named(names: list[str]) -> str:
    return f"Plugin{'' if len(names) == 1 else 's'} {', '.join(names)}"


def _are(names: list[str]) -> str:
    return "is" if len(names) == 1 else "are"


def _directories(run: Run) -> Output:
    text = "The node has no plug-ins, and so no directories of them."
    return Text(text, {"node": run.node, "result": "ok", "directories": []})


COMMANDS: Final = (
    Command(
        "directories", MONITORING, "Says that there are no directories of plug-ins", _directories,
        options=_MODES,
        banner=lambda run: f"Listing plugin directories used by node {run.node}",
    ),
    Command(
        "is_enabled", MONITORING, "Fails unless the node has what the plug-ins do", _is_enabled,
        "<plugin> [...]", (1, None), options=_MODES, banner=_is_enabled_banner,
    ),
    Command(
        "disable", _GROUP, "Changes nothing: what is built in stays", _disable,
        "<plugin> [...] | --all", (0, None), options=(_ALL, *_MODES), check=_check_names,
        banner=lambda run: "\n".join([f"Disabling plugins on node {run.node}:", *run.arguments]),
    ),
    Command(
        "enable", _GROUP, "Changes nothing, and names the plug-ins that the node does not have",
        _enable, "<plugin> [...] | --all", (0, None), options=(_ALL, *_MODES), check=_check_names,
        banner=lambda run: "\n".join([f"Enabling plugins on node {run.node}:", *run.arguments]),
    ),
    Command(
        "list", _GROUP, "Lists RabbitMQ's plug-ins; those built into the node are enabled", _list,
        "[<pattern>]", (0, 1), check=_check_pattern,
        options=(
            Option("verbose", "flag", "v", "accepted, has no effect"),
            Option("minimal", "flag", "m", "names only"),
            Option("enabled", "flag", "E", "those that are enabled"),
            Option("implicitly-enabled", "flag", "e", "the same"),
        ),
        banner=lambda run: f'Listing plugins with pattern "{_pattern(run).pattern}" ...',
    ),
    Command(
        "set", _GROUP, "Changes nothing, and names the plug-ins that differ from the node's", _set,
        "[<plugin> ...]", (0, None), options=_MODES,
        banner=lambda run: "\n".join([f"Enabling plugins on node {run.node}:", *run.arguments]),
    ),
)  # fmt: skip
