"""Commands that say whether a node may be stopped, and that wait until it may."""

import time
from collections.abc import Callable
from typing import Final

from warrenmq.admin.client.critical_queues import critical_queues
from warrenmq.cli.control.command import Command, Run
from warrenmq.cli.control.exits import CommandError
from warrenmq.cli.control.formats.output import Output, Text
from warrenmq.cli.control.nodes.cluster import describe_cluster
from warrenmq.cli.control.nodes.mirrors import rebalance_queues
from warrenmq.cli.control.objects.listings import GROUP

_UPGRADE: Final = "Upgrade"
_NOT_CRITICAL: Final = (
    "Node {node} seems to be the only one in a single node cluster, the check does not apply"
)
_NOTHING_TO_AWAIT: Final = (
    "Target node seems to be the only one in a single node cluster, the {what} does not apply"
)
_AWAIT_S: Final = 120
_PAUSE_S: Final = 0.2


def _is_alone(run: Run) -> bool:
    return len(describe_cluster(run).members) < 2


def _mirror_sync_critical(run: Run) -> Output:
    """Fail if a mirrored queue has its master on the node, and no synchronised mirror."""
    if _is_alone(run):
        return Text(_NOT_CRITICAL.format(node=run.node), {"result": "ok"})
    found = [
        f"queue '{name}' in vhost '{vhost}' would lose its only synchronised replica (master) "
        f"if node {run.node} is stopped"
        for vhost, name in critical_queues(run.ask, "classic")
    ]
    if found:
        raise CommandError("\n".join(["Error:", *found]))
    text = (
        f"Node {run.node} reported no classic mirrored queues without online synchronised mirrors"
    )
    return Text(text, {"result": "ok"})


def _quorum_critical(run: Run) -> Output:
    """Fail if a quorum queue has its master on the node, and no synchronised copy elsewhere."""
    if _is_alone(run):
        return Text(_NOT_CRITICAL.format(node=run.node), {"result": "ok"})
    found = [
        f"queue '{name}' in vhost '{vhost}' would lose quorum if node {run.node} is stopped"
        for vhost, name in critical_queues(run.ask, "quorum")
    ]
    if found:
        raise CommandError("\n".join(["Error:", *found]))
    text = f"Node {run.node} reported no quorum queues with minimum quorum"
    return Text(text, {"result": "ok"})


# -- upgrades --------------------------------------------------------------------------------------


def _await_seconds(run: Run) -> int:
    return _AWAIT_S if run.timeout_s is None else run.timeout_s


def _await_copies(kind: str) -> Callable[[Run], Output]:
    """A command that returns when no queue of `kind` needs the node, or fails after --timeout."""

    def run_command(run: Run) -> Output:
        if _is_alone(run):
            data = {"message": _NOTHING_TO_AWAIT.format(what="check"), "result": "ok"}
            return Text(_NOTHING_TO_AWAIT.format(what="command"), data, hidden_by="quiet")
        deadline = time.monotonic() + _await_seconds(run)
        while found := critical_queues(run.ask, kind):
            if time.monotonic() >= deadline:
                lines = [f"queue '{name}' in vhost '{vhost}'" for vhost, name in found]
                head = "Error:\nwithout a synchronised copy on another node that runs:"
                raise CommandError("\n".join([head, *lines]))
            time.sleep(_PAUSE_S)
        return None

    return run_command


def _post_upgrade(run: Run) -> Output:
    """Spread the masters of queues over the nodes; a node that runs alone has nothing to do."""
    if _is_alone(run):
        return Text("", {"node": run.node, "result": "ok", "value": []})
    return rebalance_queues(run, "all")


COMMANDS: Final = (
    Command(
        "check_if_node_is_mirror_sync_critical", GROUP,
        "Fails when a mirrored queue of the node has no synchronised mirror",
        _mirror_sync_critical, takes_timeout=True,
        banner=lambda run: (
            f"Checking if node {run.node} is critical for data safety of any classic mirrored "
            "queues ..."
        ),
    ),
    Command(
        "check_if_node_is_quorum_critical", GROUP,
        "Fails when a quorum queue of the node has no synchronised copy elsewhere",
        _quorum_critical, takes_timeout=True,
        banner=lambda run: (
            f"Checking if node {run.node} is critical for quorum of any quorum queues ..."
        ),
    ),
    Command(
        "await_online_quorum_plus_one", _UPGRADE,
        "Waits until no quorum queue needs the node", _await_copies("quorum"),
        takes_timeout=True, waits_itself=True,
        banner=lambda run: (
            "Will wait for a quorum + 1 of nodes to be online for all quorum queues for "
            f"{_await_seconds(run)} seconds..."
        ),
    ),
    Command(
        "await_online_synchronized_mirror", _UPGRADE,
        "Waits until no mirrored queue needs the node", _await_copies("classic"),
        takes_timeout=True, waits_itself=True,
        banner=lambda run: (
            "Will wait for a synchronised mirror be online for all classic mirrored queues for "
            f"{_await_seconds(run)} seconds..."
        ),
    ),
    Command(
        "post_upgrade", _UPGRADE, "Spreads the masters of queues over the nodes", _post_upgrade,
        banner=lambda _run: "Executing post upgrade tasks...\nRebalancing queue masters...",
    ),
)  # fmt: skip
