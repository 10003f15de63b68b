"""The cluster: its status, and how nodes join, leave and are forgotten."""

import json
from typing import Any, Final

from warrenmq.admin.protocol import cluster
from warrenmq.admin.protocol.control import List, Rows
from warrenmq.cli.control.command import Command, Run
from warrenmq.cli.control.exits import SOFTWARE, CommandError
from warrenmq.cli.control.formats.output import Output, Text
from warrenmq.cli.control.link import NoNodeError, Refused, full_node_name
from warrenmq.cli.control.nodes.status import alarm_lines, listener_line, listener_rows, section
from warrenmq.cli.control.parsing import Option
from warrenmq.vocabulary.error_codes import EXISTS, NOT_FOUND
from warrenmq.vocabulary.feature_flags import FEATURE_FLAGS, flag_state
from warrenmq.vocabulary.rabbitmq_version import RABBITMQ_VERSION

GROUP: Final = "Cluster"
_NONE: Final = "(none)"


def describe_cluster(run: Run) -> cluster.ClusterStatus:
    """The cluster as the node knows it; of a node that runs alone, itself."""
    return run.ask(cluster.DescribeCluster(), cluster.ClusterStatus)


# -- cluster_status --------------------------------------------------------------------------------


def cluster_status(run: Run) -> Output:
    """The nodes of the cluster, and what each says of itself."""
    status = describe_cluster(run)
    name = _cluster_name(run, status)
    data = _fields(status, name)
    return Text("\n".join(_lines(status, name)), data, report=data)


def _cluster_name(run: Run, status: cluster.ClusterStatus) -> str:
    """The name that `set_cluster_name` has set, or else that of the cluster or the lone node."""
    found = run.ask(List(what="global_parameters", columns=["name", "value"]), Rows).rows
    names = {name: json.loads(value) for name, value in found}
    return str(names.get("cluster_name", status.cluster or status.node))


def _lines(status: cluster.ClusterStatus, name: str) -> list[str]:
    nodes = status.nodes
    alarms = [line for node in nodes for line in alarm_lines(node)]
    partitions = [
        f"Node {node} cannot communicate with {', '.join(others)}"
        for node, others in status.partitions.items()
    ]
    listeners = [
        f"Node: {row['node']}, i{listener_line(row)[1:]}"
        for node in nodes
        for row in listener_rows(node)
    ]
    flags = [f"Flag: {flag}, state: {flag_state(is_on)}" for flag, is_on in FEATURE_FLAGS.items()]
    return [
        *section("Basics", f"Cluster name: {name}"),
        *section("Disk Nodes", *status.members),
        *section("Running Nodes", *status.running),
        *section("Versions", *[f"{node.node}: {_version(node)}" for node in nodes]),
        *section(
            "Maintenance status",
            *[f"Node: {node.node}, status: {_maintenance(node)}" for node in nodes],
        ),
        *section("Alarms", *(alarms or [_NONE])),
        *section("Network Partitions", *(partitions or [_NONE])),
        *section("Listeners", *listeners),
        *_own_lines(status),
        *section("Feature flags", *flags)[:-1],
    ]


def _own_lines(status: cluster.ClusterStatus) -> list[str]:
    """The sections that only a cluster of warren has."""
    etcd = status.etcd
    if etcd is None:
        return []
    if etcd.failure:
        lines = [f"etcd does not answer: {etcd.failure}"]
    else:
        lines = [
            f"etcd {etcd.version}, database size: {etcd.db_size_bytes} bytes",
            *[f"Member: {member.name}, URLs: {', '.join(member.urls)}" for member in etcd.members],
            *[f"Alarm: {alarm}" for alarm in etcd.alarms],
            f"Last failure: {etcd.last_failure or _NONE}",
        ]
    links = [
        f"Node: {node.node}, peer: {link.node}, up for: {link.up_ms // 1000} s, "
        f"unsent: {link.unsent_bytes} bytes, decisions: {link.followed}"
        for node in status.nodes
        for link in node.links
    ]
    decisions = [
        f"Node: {node.node}, decisions: {node.followed}"
        for node in status.nodes
        if node.is_reachable
    ]
    return [
        *section("Metadata store", *lines),
        *section("Followed decisions", *decisions),
        *section("Links", *(links or [_NONE])),
    ]


def _version(node: cluster.MemberDescription) -> str:
    python = f" on Python {node.python}" if node.python else ", which does not answer"
    return f"RabbitMQ {RABBITMQ_VERSION} (warren {node.version}){python}"


def _maintenance(node: cluster.MemberDescription) -> str:
    if node.is_draining:
        return "marked for maintenance"
    return "not under maintenance" if node.is_reachable else "unknown"


def _fields(status: cluster.ClusterStatus, name: str) -> dict[str, Any]:
    nodes = status.nodes
    data: dict[str, Any] = {
        "alarms": [line for node in nodes for line in alarm_lines(node)],
        "cluster_name": name,
        "disk_nodes": status.members,
        "feature_flags": [
            {"name": flag, "state": flag_state(is_on)} for flag, is_on in FEATURE_FLAGS.items()
        ],
        "listeners": {node.node: listener_rows(node) for node in nodes},
        "maintenance_status": {node.node: _maintenance(node) for node in nodes},
        "partitions": status.partitions,
        "ram_nodes": [],
        "running_nodes": status.running,
        "versions": {
            node.node: {
                "product_name": "warren",
                "product_version": node.version,
                "python_version": node.python,
                "rabbitmq_name": "RabbitMQ",
                "rabbitmq_version": RABBITMQ_VERSION,
            }
            for node in nodes
        },
    }
    etcd = status.etcd
    if etcd is not None:
        data["etcd"] = {
            "alarms": etcd.alarms,
            "db_size": etcd.db_size_bytes,
            "failure": etcd.failure,
            "last_failure": etcd.last_failure,
            "members": {member.name: member.urls for member in etcd.members},
            "version": etcd.version,
        }
        data["decisions"] = {node.node: node.followed for node in nodes}
        data["links"] = {
            node.node: [
                {
                    "decisions": link.followed,
                    "peer": link.node,
                    "unsent": link.unsent_bytes,
                    "uptime": link.up_ms // 1000,
                }
                for link in node.links
            ]
            for node in nodes
        }
    return data


# -- membership ------------------------------------------------------------------------------------


def _forget(run: Run) -> Output:
    run.do(cluster.ForgetNode(node=full_node_name(run[0]), is_forced=run.flag("force")))
    return None


def _join(run: Run) -> Output:
    seed = full_node_name(run[0])
    if seed == run.node:
        text = f"Error:\nError: cannot cluster node with itself: {seed}"
        raise CommandError(text, SOFTWARE)
    try:
        run.do(cluster.JoinCluster(seed=seed))
    except Refused as error:
        if error.refusal == EXISTS:
            return Text(error.reason)
        if error.refusal == NOT_FOUND:
            raise NoNodeError(seed, error.reason) from None
        raise
    return None


def _rotate(run: Run) -> Output:
    run.do(cluster.RotateSecret(is_end=run.flag("end")))
    return None


def _peers(run: Run) -> Output:
    return Text("\n".join(describe_cluster(run).members))


COMMANDS: Final = (
    Command(
        "cluster_status", GROUP, "Shows the nodes of the cluster, or the node that runs alone",
        cluster_status, takes_timeout=True,
        banner=lambda run: f"Cluster status of node {run.node} ...",
    ),
    Command(
        "discover_peers", GROUP, "Lists the members of the cluster", _peers, takes_timeout=True,
        banner=lambda _run: "Discovering peers nodes ...",
    ),
    Command(
        "forget_cluster_node", GROUP, "Removes a node that does not run from the cluster", _forget,
        "<existing_cluster_member_node>", (1, 1), needs="node",
        options=(
            Option("offline", "flag", help="accepted: this node may be stopped as well"),
            Option("force", "flag", help="deletes the durable queues of the node"),
        ),
        banner=lambda run: f"Removing node {full_node_name(run[0])} from the cluster",
    ),
    Command(
        "join_cluster", GROUP, "Makes a node that was reset a member of its cluster again", _join,
        "<existing_cluster_member>", (1, 1), needs="stopped",
        options=(
            Option("disc", "flag", help="accepted, has no effect"),
            Option("ram", "flag", help="accepted, has no effect"),
        ),
        banner=lambda run: f"Clustering node {run.node} with {full_node_name(run[0])}",
    ),
    Command(
        "rotate_cluster_secret", GROUP,
        "Gives the nodes a new secret to prove to each other; the one before serves until --end",
        _rotate, needs="node",
        options=(Option("end", "flag", help="puts the secret before out of use"),),
        banner=lambda _run: "Rotating the secret of the cluster ...",
    ),
)  # fmt: skip
