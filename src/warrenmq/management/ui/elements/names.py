"""Exchanges as pages name them: the default one has a name of its own there."""

from typing import Any

import htpy as h

from warrenmq.management.ui.api import path_to
from warrenmq.management.ui.page import Page

# The default exchange in paths of the API and of pages.
DEFAULT = "amq.default"


def exchange_path(vhost: str, name: str) -> str:
    """The path of an exchange behind `exchanges/`."""
    return path_to(vhost, name or DEFAULT)


def exchange_link(page: Page, vhost: str, name: str) -> h.Element:
    """A link to the page of an exchange."""
    return h.a(href=page.link(f"/exchanges/{exchange_path(vhost, name)}"))[name or "(AMQP default)"]


def queue_link(page: Page, vhost: str, name: str) -> h.Element:
    """A link to the page of a queue."""
    return h.a(href=page.link(f"/queues/{path_to(vhost, name)}"))[name]


def features(row: dict[str, Any]) -> h.Node:
    """RabbitMQ's badges of an exchange."""
    arguments = dict(row.get("arguments", {}))
    alternate = arguments.pop("alternate-exchange", None)
    badges = [
        ("D", "durable", row.get("durable")),
        ("AD", "auto-delete", row.get("auto_delete")),
        ("I", "internal: takes messages of other exchanges only", row.get("internal")),
        ("AE", f"alternate exchange: {alternate}", alternate),
        ("Args", ", ".join([f"{name}={value}" for name, value in arguments.items()]), arguments),
    ]
    policy = row.get("policy")
    return [
        [h.abbr(".badge", title=meaning)[text] for text, meaning, is_there in badges if is_there],
        policy and h.abbr(".badge.blue", title="policy")[policy],
    ]
