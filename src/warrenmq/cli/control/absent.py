"""Commands of RabbitMQ's tools that a warren node has no use for: each says why, and fails."""

from typing import Final

from warrenmq.cli.control.command import Command, Run
from warrenmq.cli.control.exits import CommandError
from warrenmq.cli.control.formats.output import Output

GROUP: Final = "Not available"
_ERLANG: Final = "a warren node is no Erlang node"
_MEMBERS: Final = "the cluster places the copies of quorum queues itself; see mirror_status"
_ENCRYPTED: Final = "the configuration has no encrypted values"

REASONS: Final = {
    "add_member": _MEMBERS,
    "change_cluster_node_type": "all nodes of a cluster are of one type",
    "command_line_arguments": "see environment for the settings in force",
    "decode": _ENCRYPTED,
    "delete_member": _MEMBERS,
    "encode": _ENCRYPTED,
    "erlang_cookie_hash": _ERLANG,
    "erlang_cookie_sources": _ERLANG,
    "erlang_version": _ERLANG,
    "eval": _ERLANG,
    "eval_file": _ERLANG,
    "exec": _ERLANG,
    "force_boot": "a node does not wait for the others when it starts",
    "force_gc": "a warren node returns memory by itself",
    "grow": _MEMBERS,
    "hipe_compile": _ERLANG,
    "list_ciphers": _ENCRYPTED,
    "list_hashes": _ENCRYPTED,
    "list_network_interfaces": "see the operating system's own tools",
    "maybe_stuck": _ERLANG,
    "observer": _ERLANG,
    "peek": "a client that gets a message and returns it sees it",
    "reclaim_quorum_memory": "a warren node returns memory by itself",
    "remote_shell": _ERLANG,
    "rename_cluster_node": "the name of a node stays; see join_cluster and forget_cluster_node",
    "resolve_hostname": "see the operating system's own tools",
    "resolver_info": _ERLANG,
    "runtime_thread_stats": _ERLANG,
    "schema_info": _ERLANG,
    "shrink": _MEMBERS,
    "stream_status": "there are no streams",
    "update_cluster_nodes": "the nodes find each other in etcd",
}


def _absent(name: str, reason: str) -> Command:
    def fail(_run: Run) -> Output:
        raise CommandError(f"Error:\n{name} is not available: {reason}")

    return Command(name, GROUP, reason, fail, "[...]", (0, None), needs="nothing", is_absent=True)


COMMANDS: Final = tuple([_absent(name, reason) for name, reason in REASONS.items()])
