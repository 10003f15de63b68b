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
    arguments = queue.get("arguments") or {}
    defined = queue.get("effective_policy_definition") or {}
    found: list[tuple[str, str]] = []
    if queue.get("durable"):
        found.append(("D", "durable"))
    if queue.get("auto_delete"):
        found.append(("AD", "auto-delete"))
    if queue.get("exclusive"):
        found.append(("Excl", "exclusive"))
    found += [(badge, name) for name, badge in _ARGUMENTS.items() if name in arguments]
    own = {badge for badge, _ in found}
    found += [
        (badge, f"{name}, by policy")
        for name, badge in _POLICY.items()
        if name in defined and badge not in own
    ]
    if any([name not in _ARGUMENTS and name != "x-queue-type" for name in arguments]):
        found.append(("Args", "other arguments"))
    return [
        [h.abbr(".badge", title=title)[badge] for badge, title in found],
        queue.get("policy") and h.abbr(".badge", title="policy")[queue["policy"]],
        queue.get("operator_policy")
        and h.abbr(".badge", title="operator policy")[queue["operator_policy"]],
        _mirrors(queue),
    ]


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
