"""Requests that a session passes on to other nodes of the cluster, and the answers to them.

The node of the session has checked what its user may do: users and rights are the same on all
nodes. The other node carries the request out for itself alone, so that no request goes round.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from warrenmq.admin.definitions.administration import Refusal
from warrenmq.admin.protocol.control import ControlReply, ControlRequest
from warrenmq.admin.protocol.requests import ErrorReply
from warrenmq.cluster.links.node_calls import ANSWER_MS
from warrenmq.vocabulary.error_codes import UNREACHABLE

if TYPE_CHECKING:
    from warrenmq.cluster.membership.control import ClusterControl

# The answer of one node to another.
Answer = ControlReply | ErrorReply


class _Passed(msgspec.Struct, frozen=True, array_like=True):
    """A request of `user`, "" for a local administrator."""

    user: bytes
    request: ControlRequest


_decoder: msgspec.msgpack.Decoder[Answer] = msgspec.msgpack.Decoder(Answer)
_passed_decoder: msgspec.msgpack.Decoder[_Passed] = msgspec.msgpack.Decoder(_Passed)


class Peers:
    """The other nodes of `cluster`, as the session of `user` asks them.

    `guard` runs what follows an answer, and answers the session's request if that fails.
    """

    def __init__(
        self,
        cluster: ClusterControl,
        user: bytes,
        guard: Callable[[Callable[[], None]], None],
    ) -> None:
        self.cluster = cluster
        self._user = user
        self._guard = guard

    def ask(
        self,
        node: str,
        request: ControlRequest,
        done: Callable[[Answer], None],
        wait_ms: int = ANSWER_MS,
    ) -> None:
        """Let `node` carry out `request`; `done` gets its answer, once, perhaps at once.

        UNREACHABLE: the node has not answered for `wait_ms`; whether it has carried out the request
        is unknown.
        """

        def on_answer(answer: bytes, failure: str) -> None:
            self._guard(lambda: done(_decoded(node, answer, failure)))

        passed = msgspec.msgpack.encode(_Passed(self._user, request))
        self.cluster.ask(node, passed, wait_ms, on_answer)

    def ask_all(self, request: ControlRequest, done: Callable[[dict[str, Answer]], None]) -> None:
        """Ask all nodes to which there is a link; `done` gets their answers by node, sorted."""
        nodes = self.cluster.reachable()
        answers: dict[str, Answer] = {}

        def take(node: str, answer: Answer) -> None:
            answers[node] = answer
            if len(answers) == len(nodes):
                done({name: answers[name] for name in nodes})

        if not nodes:
            done({})
        for node in nodes:
            self.ask(node, request, partial(take, node))


def ask_other(
    peers: Peers | None,
    node: str,
    request: ControlRequest,
    done: Callable[[Answer], None],
    wait_ms: int = ANSWER_MS,
) -> None:
    """Let another node carry out `request`, as `Peers.ask`.

    `peers`: None for none. Raises Refusal without a link to the node.
    """
    if peers is None or node not in peers.cluster.reachable():
        raise Refusal(UNREACHABLE, f"there is no link to a node {node}")
    peers.ask(node, request, done, wait_ms)


def _decoded(node: str, answer: bytes, failure: str) -> Answer:
    """The answer of `node`, or why there is none."""
    if failure:
        return ErrorReply(UNREACHABLE, failure)
    try:
        return _decoder.decode(answer)
    except msgspec.DecodeError as error:
        # A node of a later version answers with something that this one does not know.
        return ErrorReply(UNREACHABLE, f"the answer of node {node} is not known here: {error}")


def decode_passed(request: bytes) -> tuple[bytes, ControlRequest]:
    """The user and the request that another node passes on. Raises msgspec.DecodeError."""
    passed = _passed_decoder.decode(request)
    return passed.user, passed.request
