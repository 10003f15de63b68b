"""The calls of one session about the cluster of its node, and the description of all its nodes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from warrenmq.admin.control.control_host import ControlHost
from warrenmq.admin.control.peers import Answer, Peers, ask_other
from warrenmq.admin.control.queues import CHANGE_MS
from warrenmq.admin.definitions.administration import Refusal
from warrenmq.admin.protocol.cluster import (
    ClusterRequest,
    ClusterStatus,
    DescribeCluster,
    DescribeMember,
    EtcdMemberStatus,
    EtcdStatus,
    ForgetNode,
    JoinCluster,
    LinkStatus,
    ListenerStatus,
    MemberDescription,
    RotateSecret,
    SetDraining,
)
from warrenmq.admin.protocol.control import ControlReply, Done
from warrenmq.admin.protocol.requests import ErrorReply
from warrenmq.cluster.facts import NO_MEMBER, ClusterFacts, EtcdFacts, LinkFacts, RunningFacts
from warrenmq.vocabulary.error_codes import NOT_FOUND, PRECONDITION

if TYPE_CHECKING:
    from warrenmq.cluster.membership.control import ClusterControl

_ALONE = "the node is not configured for a cluster: see cluster.name and cluster.etcd"


class ClusterCalls:
    """Carries out the cluster requests of a session; each is answered once, through `reply`.

    `cluster`: None for a node that runs alone. `peers`: the other nodes that may be asked, None for
    none. `guard` runs a step, and answers the request if that fails.
    """

    def __init__(
        self,
        control: ControlHost,
        cluster: ClusterControl | None,
        peers: Peers | None,
        guard: Callable[[Callable[[], None]], None],
        reply: Callable[[ControlReply | ErrorReply], None],
    ) -> None:
        self._control = control
        self._cluster = cluster
        self._peers = peers
        self._guard = guard
        self._reply = reply

    def start(self, request: ClusterRequest) -> None:
        """Carry out `request`. Raises Refusal."""
        cluster = self._cluster
        if isinstance(request, DescribeMember):
            self._reply(self._describe_own())
        elif isinstance(request, SetDraining):
            self._set_draining(request)
        elif cluster is None:
            if isinstance(request, ForgetNode):
                raise Refusal(NOT_FOUND, NO_MEMBER)
            if isinstance(request, JoinCluster | RotateSecret):
                raise Refusal(PRECONDITION, _ALONE)
            own = self._describe_own()
            self._reply(ClusterStatus("", own.node, [own.node], [own.node], [own], {}, None))
        elif isinstance(request, DescribeCluster):
            cluster.describe(lambda facts: self._guard(lambda: self._ask_all(facts)))
        elif isinstance(request, ForgetNode):
            cluster.forget(request.node, request.is_forced, self._on_done)
        elif isinstance(request, RotateSecret):
            cluster.rotate_secret(request.is_end, self._on_done)
        elif isinstance(request, JoinCluster):
            if self._control.is_running:
                raise Refusal(PRECONDITION, "this command requires the broker to be stopped first")
            cluster.join(request.seed, self._on_done)

    def _set_draining(self, request: SetDraining) -> None:
        """Let the other nodes know first: they must not place a queue on a node without clients."""
        if request.node not in ("", self._control.describe().node):
            ask_other(self._peers, request.node, request, self._reply, CHANGE_MS)
            return
        if not self._control.is_running:
            raise Refusal(PRECONDITION, "this command requires the broker to run")

        def on_announced(code: str, text: str) -> None:
            if not code:
                self._control.set_draining(request.is_on)
            self._on_done(code, text)

        if self._cluster is None:
            on_announced("", "")
        else:
            self._cluster.set_draining(request.is_on, on_announced)

    def _on_done(self, code: str, text: str) -> None:
        self._reply(ErrorReply(code, text) if code else Done())

    # -- description -------------------------------------------------------------------------------

    def _ask_all(self, facts: ClusterFacts) -> None:
        if self._peers is None:
            self._reply(self._describe(facts, {}))
        else:
            self._peers.ask_all(
                DescribeMember(), lambda answers: self._reply(self._describe(facts, answers))
            )

    def _describe_own(self) -> MemberDescription:
        status = self._control.describe()
        cluster = self._cluster
        links = () if cluster is None else cluster.links()
        return MemberDescription(
            node=status.node,
            version=status.version,
            python=status.python,
            is_reachable=True,
            is_listening=status.is_listening,
            is_draining=status.is_draining,
            listeners=status.listeners,
            alarms=status.alarms,
            followed=0 if cluster is None else cluster.followed(),
            links=[_link_status(link) for link in links],
        )

    def _describe(self, facts: ClusterFacts, answers: dict[str, Answer]) -> ClusterStatus:
        own = self._describe_own()
        nodes: list[MemberDescription] = []
        for name in facts.running:
            answer = answers.get(name)
            node = own if name == own.node else answer
            if not isinstance(node, MemberDescription):
                node = _announced(name, facts)
            node.listeners.append(_cluster_listener(facts.running[name]))
            nodes.append(node)
        return ClusterStatus(
            cluster=facts.name,
            node=own.node,
            members=list(facts.members),
            running=list(facts.running),
            nodes=nodes,
            partitions=_partitions(nodes),
            etcd=_etcd_status(facts.etcd),
        )


def _announced(name: str, facts: ClusterFacts) -> MemberDescription:
    """A running node that does not answer, as it has announced itself."""
    running = facts.running[name]
    listeners = [ListenerStatus(*each) for each in running.listeners]
    return MemberDescription(
        node=name,
        version=running.version,
        python="",
        is_reachable=False,
        is_listening=False,
        is_draining=running.is_draining,
        listeners=listeners,
        alarms=[],
        followed=0,
        links=[],
    )


def _cluster_listener(running: RunningFacts) -> ListenerStatus:
    """Where other nodes dial a node."""
    return ListenerStatus("clustering", running.host, running.port)


def _partitions(nodes: list[MemberDescription]) -> dict[str, list[str]]:
    """By node, the running nodes to which it has no link, as far as it has answered."""
    found: dict[str, list[str]] = {}
    for node in nodes:
        linked = {node.node, *(link.node for link in node.links)}
        missing = [each.node for each in nodes if each.node not in linked]
        if missing and node.is_reachable:
            found[node.node] = missing
    return found


def _link_status(link: LinkFacts) -> LinkStatus:
    return LinkStatus(link.peer, link.up_ms, link.unsent_bytes, link.followed)


def _etcd_status(etcd: EtcdFacts) -> EtcdStatus:
    return EtcdStatus(
        failure=etcd.failure,
        last_failure=etcd.last_failure,
        version=etcd.version,
        db_size_bytes=etcd.db_size_bytes,
        members=[EtcdMemberStatus(name, list(urls)) for name, urls in etcd.members.items()],
        alarms=list(etcd.alarms),
    )
