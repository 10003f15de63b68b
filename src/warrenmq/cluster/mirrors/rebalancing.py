"""Which masters move so that every node has about as many of them."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Mapping
from itertools import pairwise
from typing import TypeVar

_Queue = TypeVar("_Queue")
_Edges = dict[tuple[bytes, bytes], dict[_Queue, None]]


def plan_moves(
    masters: Mapping[_Queue, bytes],
    mirrors: Mapping[_Queue, Collection[bytes]],
    nodes: Collection[bytes],
) -> dict[_Queue, bytes]:
    """The queues whose masters move, with their new nodes.

    `masters`: the node of each queue's master, one of `nodes`. `mirrors`: the nodes to which it may
    move. As few masters move as it takes: one goes straight to the emptiest node, or several make
    room for each other where no queue of the fullest node has a mirror there.
    """
    places = dict(masters)
    counts = Counter(dict.fromkeys(nodes, 0))
    counts.update(places.values())
    choices = {
        queue: [node for node in mirrors.get(queue, ()) if node in counts and node != master]
        for queue, master in masters.items()
    }
    edges: _Edges[_Queue] = {}
    for queue, others in choices.items():
        for node in others:
            edges.setdefault((places[queue], node), {})[queue] = None
    while path := _path(counts, edges):
        for source, target in pairwise(path):
            queue = next(iter(edges[source, target]))
            home = {masters[queue], *choices[queue]}
            for node in home - {source}:
                del edges[source, node][queue]
            for node in home - {target}:
                edges.setdefault((target, node), {})[queue] = None
            places[queue] = target
        counts[path[0]] -= 1
        counts[path[-1]] += 1
    return {queue: node for queue, node in places.items() if node != masters[queue]}


def _path(counts: Counter[bytes], edges: _Edges[_Queue]) -> list[bytes]:
    """The shortest way on which a full node can give a master to one with at least two fewer."""
    for source in sorted(counts, key=lambda node: (-counts[node], node)):
        ways = {source: [source]}
        found = deque([source])
        while found:
            node = found.popleft()
            if counts[source] - counts[node] >= 2:
                return ways[node]
            for other in sorted(counts, key=lambda each: (counts[each], each)):
                if other not in ways and edges.get((node, other)):
                    ways[other] = [*ways[node], other]
                    found.append(other)
    return []
