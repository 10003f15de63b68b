"""Why a node has an alarm, what that does, and what to do."""

from typing import Any

import htpy as h

from warrenmq.management.ui import figures
from warrenmq.management.ui.api import path_to
from warrenmq.management.ui.page import Page


def alarms(page: Page, node: dict[str, Any]) -> h.Node:
    """The alarms of a node of the API, and what else is wrong with it."""
    if not node.get("running"):
        return _alarm(
            "The node does not run",
            "Queues that are on it only are down; mirrors in sync have taken over the others.",
            [
                h.li["Start it again: its durable messages are on its disk."],
                h.li["Look into its log for the reason of its stop."],
            ],
        )
    return [
        node.get("mem_alarm") and _memory(page, node),
        node.get("disk_free_alarm") and _disk(page, node),
        node.get("partitions") and _partitions(page, node),
        node.get("being_drained")
        and h.p(".note")[
            "The node is in maintenance mode: it has no clients, and new queues go elsewhere. ",
            h.a(href=page.link(f"/nodes/{path_to(node['name'])}/drain"))[
                "What is left on it, and the end of the maintenance"
            ],
        ],
    ]


def _memory(page: Page, node: dict[str, Any]) -> h.Element:
    used, limit = figures.size(node["mem_used"]), figures.size(node["mem_limit"])
    return _alarm(
        f"Memory alarm: {used} used of {limit}",
        "Connections that publish are blocked on all nodes until the node uses less. Consumers "
        "go on.",
        [
            h.li[
                "Find ",
                h.a(href=page.link("/queues", sort="memory", sort_reverse="true"))[
                    "the queues with the most memory"
                ],
                ": add consumers, or purge what nobody wants.",
            ],
            h.li[
                "Look whether ",
                h.a(href=page.link("/channels", sort="messages_unacknowledged",
                                   sort_reverse="true"))["consumers hold unacked messages"],
                ": a prefetch bounds them.",
            ],
            h.li["Raise vm_memory_high_watermark if the machine has memory left."],
        ],
    )  # fmt: skip


def _disk(page: Page, node: dict[str, Any]) -> h.Element:
    free, limit = figures.size(node["disk_free"]), figures.size(node["disk_free_limit"])
    return _alarm(
        f"Disk alarm: {free} free, at least {limit} are wanted",
        "Connections that publish are blocked on all nodes until more is free. Consumers go on, "
        "and acks are still stored.",
        [
            h.li[
                "Find ",
                h.a(href=page.link("/storage", tab="queues"))["the queue that fills the disk"],
                ", and why its messages stay.",
            ],
            h.li[
                "Free ",
                h.a(href=page.link("/storage"))["garbage of large messages"],
                " by a compaction.",
            ],
            h.li["Free space beside the broker, or lower disk_free_limit."],
        ],
    )


def _partitions(page: Page, node: dict[str, Any]) -> h.Element:
    return _alarm(
        f"No link to {', '.join(node['partitions'])}",
        "No node stops. Of the queues whose master and mirrors do not hear each other, the master "
        "leaves mirrors out, or a mirror takes over.",
        [
            h.li["Look at ", h.a(href=page.link("/nodes", tab="cluster"))["links and etcd"], "."],
            h.li["Mend the network between the nodes: links come back by themselves."],
        ],
    )


def _alarm(title: str, effect: str, steps: h.Node) -> h.Element:
    return h.section(".panel")[h.p(".alarm")[title], h.p[effect], h.p["What to do:"], h.ul[steps]]
