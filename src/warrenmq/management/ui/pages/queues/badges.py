"""What RabbitMQ's pages show of a queue in few letters."""

from typing import Any, Final

import htpy as h

# Arguments with a badge of their own.
_ARGUMENTS: Final = {
    "x-message-ttl": "TTL",
    "x-expires": "Exp",
    "x-max-length": "Lim",
    "x-max-length-bytes": "Lim B",
    "x-dead-letter-exchange": "DLX",
    "x-dead-letter-routing-key": "DLK",
    "x-max-priority": "Pri",
    "x-single-active-consumer": "SAC",
}
# Keys of policies by the argument that does the same.
_POLICY: Final = {
    "message-ttl": "TTL",
    "expires": "Exp",
    "max-length": "Lim",
    "max-length-bytes": "Lim B",
    "dead-letter-exchange": "DLX",
    "dead-letter-routing-key": "DLK",
}


def badges(queue: dict[str, Any]) -> h.Node:
    """Features, policies and mirrors of a queue of the API."""
    defined = queue.get("effective_policy_definition") or {}
    own = _features(queue)
    known = {badge for badge, _ in own}
    by_policy = [
        (badge, f"{name}, by policy")
        for name, badge in _POLICY.items()
        if name in defined and badge not in known
    ]
    return [
        _shown([*own, *by_policy]),
        queue.get("policy") and h.abbr(".badge", title="policy")[queue["policy"]],
        queue.get("operator_policy")
        and h.abbr(".badge", title="operator policy")[queue["operator_policy"]],
        _mirrors(queue),
    ]


def own_badges(queue: dict[str, Any]) -> h.Node:
    """Features that a queue of the API has by itself."""
    return _shown(_features(queue))


def _features(queue: dict[str, Any]) -> list[tuple[str, str]]:
    arguments = queue.get("arguments") or {}
    flags = (("D", "durable"), ("AD", "auto_delete"), ("Excl", "exclusive"))
    found = [(badge, name.replace("_", "-")) for badge, name in flags if queue.get(name)]
    found += [
        (badge, f"{name} = {arguments[name]}")
        for name, badge in _ARGUMENTS.items()
        if name in arguments
    ]
    others = [name for name in arguments if name not in _ARGUMENTS and name != "x-queue-type"]
    if others:
        found.append(("Args", ", ".join([f"{name} = {arguments[name]}" for name in others])))
    return found


def _shown(found: list[tuple[str, str]]) -> h.Node:
    return [h.abbr(".badge", title=title)[badge] for badge, title in found]


def _mirrors(queue: dict[str, Any]) -> h.Node:
    mirrors = queue.get("slave_nodes")
    if mirrors is None:
        return None
    lacking = sorted(set(mirrors) - set(queue.get("synchronised_slave_nodes") or []))
    return [
        h.abbr(".badge.blue", title=f"mirrors: {', '.join(mirrors) or 'none'}")[f"+{len(mirrors)}"],
        lacking
        and h.abbr(".badge.bad", title=f"not synchronised: {', '.join(lacking)}")[
            f"+{len(lacking)} unsynchronised"
        ],
    ]
