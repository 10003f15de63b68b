"""Connections: the list, and one with its rates and channels."""

from typing import Annotated, Any, Final

import htpy as h
from fastapi import APIRouter, Form
from starlette.responses import Response

from warrenmq.management.ui import figures
from warrenmq.management.ui.api import path_to
from warrenmq.management.ui.elements.charts import Series, chart, rates
from warrenmq.management.ui.elements.forms import folded_form, text_field
from warrenmq.management.ui.elements.lists import show_list
from warrenmq.management.ui.elements.tables import (
    Column,
    Row,
    figures_table,
    state_square,
    table,
    unsorted,
)
from warrenmq.management.ui.elements.values import shown_values
from warrenmq.management.ui.page import Page, PageOf
from warrenmq.management.ui.pages.channels import channel_columns
from warrenmq.management.ui.visit import RANGES

router = APIRouter()

_TLS: Final = (
    ("Protocol", "ssl_protocol"),
    ("Key exchange", "ssl_key_exchange"),
    ("Cipher", "ssl_cipher"),
    ("Hash", "ssl_hash"),
    ("Subject of the client's certificate", "peer_cert_subject"),
    ("Issuer of it", "peer_cert_issuer"),
    ("Valid", "peer_cert_validity"),
)


@router.get("/connections")
async def connections(page: PageOf) -> Response:
    """The page of all connections that the user sees."""
    path = f"vhosts/{path_to(page.vhost)}/connections" if page.vhost else "connections"
    return await show_list(page, "connection", path, _columns(page), lambda row: row["name"])


@router.get("/connections/{name:segment}")
async def connection(page: PageOf, name: str) -> Response:
    """The page of one connection."""
    path = f"connections/{path_to(name)}"
    found = await page.api.get(path, page.samples("data_rates"))
    channels = await page.api.get(f"{path}/channels")
    may_close = page.has_tag("administrator") or found["user"] == page.sign_in.user
    return await page.show(
        f"Connection {name}",
        page.live("connection-charts", _charts(page, found)),
        page.live("connection-facts", _facts(page, found)),
        h.h2["Channels"],
        table(page, "channels", unsorted(channel_columns(page)), channels, lambda row: row["name"]),
        h.h2["Client properties"],
        h.div(".panel")[shown_values(found.get("client_properties", {}))],
        may_close and _close_form(page, name),
    )


@router.post("/connections/{name:segment}/close")
async def close(page: PageOf, name: str, reason: Annotated[str, Form()] = "") -> Response:
    """Close a connection; its client is told the reason."""
    # Headers of HTTP have no other letters.
    shown = reason.encode("ascii", "replace").decode()
    headers = {"x-reason": shown} if shown.strip() else {}
    await page.api.delete(f"connections/{path_to(name)}", headers)
    return page.go("/connections", f"Connection {name} closed.")


def _columns(page: Page) -> list[Column]:
    return [
        Column("Name", lambda row: _name(page, row), "name"),
        Column("Virtual host", lambda row: row.get("vhost"), "vhost"),
        Column("Node", lambda row: row["node"], "node", is_optional=True),
        Column("User name", lambda row: row.get("user"), "user"),
        Column("State", state_square, "state"),
        Column("TLS", lambda row: "●" if row.get("ssl") else "○", "ssl"),
        Column("TLS details", _tls_in_short, is_optional=True),
        Column("Protocol", lambda row: row["protocol"], "protocol"),
        _number("Channels", "channels"),
        _number("Channel max", "channel_max", is_optional=True),
        _number("Frame max", "frame_max", is_optional=True),
        Column("Auth mechanism", lambda row: row.get("auth_mechanism"), "auth_mechanism",
               is_optional=True),
        Column("Client", _client, is_optional=True),
        _rate("From client", "recv_oct"),
        _rate("To client", "send_oct"),
        Column("Heartbeat", lambda row: _heartbeat(row), "timeout", is_number=True,
               is_optional=True),
        Column("Connected at", lambda row: figures.moment(row.get("connected_at")),
               "connected_at", is_optional=True),
    ]  # fmt: skip


def _number(title: str, field: str, is_optional: bool = False) -> Column:
    return Column(title, lambda row: figures.count(row.get(field)), field, True, is_optional)


def _rate(title: str, field: str) -> Column:
    return Column(
        title,
        lambda row: figures.size_rate(_rate_of(row, field)),
        f"{field}_details.rate",
        is_number=True,
    )


def _rate_of(row: Row, field: str) -> Any:
    return row.get(f"{field}_details", {}).get("rate")


def _name(page: Page, row: Row) -> h.Node:
    given = row.get("user_provided_name")
    return [
        h.a(href=page.link(f"/connections/{path_to(row['name'])}"))[row["name"]],
        given and [h.br, h.small[given]],
    ]


def _tls_in_short(row: Row) -> str:
    shown = [str(row[field]) for _, field in _TLS[:4] if row.get(field)]
    return ", ".join(shown)


def _client(row: Row) -> str:
    known = row.get("client_properties", {})
    return " ".join([str(known[name]) for name in ("product", "version") if name in known])


def _heartbeat(row: Row) -> str:
    return f"{row['timeout']} s" if row.get("timeout") else figures.NONE


def _charts(page: Page, found: Row) -> h.Element:
    series = [
        Series("From client", "c1", rates(found.get("recv_oct_details"))),
        Series("To client", "c2", rates(found.get("send_oct_details"))),
    ]
    interval = RANGES[page.range][1]
    return h.div(".charts")[chart("Bytes", series, interval, figures.size_rate)]


def _facts(page: Page, found: Row) -> h.Node:
    vhost = found.get("vhost", "")
    details: list[tuple[str, h.Node]] = [
        ("Name given by the client", found.get("user_provided_name") or figures.NONE),
        ("Virtual host", vhost),
        ("User name", found.get("user")),
        ("Node", found["node"]),
        ("State", state_square(found)),
        ("Protocol", found["protocol"]),
        ("Client", _client(found) or figures.NONE),
        ("Client's address", f"{found.get('peer_host')}:{found.get('peer_port')}"),
        ("Auth mechanism", found.get("auth_mechanism")),
        ("Connected at", f"{figures.moment(found.get('connected_at'))} UTC"),
        ("Heartbeat", _heartbeat(found)),
        ("Frame max", figures.size(found.get("frame_max"))),
        ("Channel max", figures.count(found.get("channel_max"))),
    ]
    traffic: list[tuple[str, h.Node]] = [
        ("From client", _traffic(found, "recv")),
        ("To client", _traffic(found, "send")),
        ("Waiting to be sent", figures.size(found.get("send_pend"))),
    ]
    tls: list[tuple[str, h.Node]] = [
        (title, str(found[field])) for title, field in _TLS if found.get(field)
    ]
    return h.div(".charts")[
        figures_table("Details", details),
        figures_table("Traffic", traffic),
        found.get("ssl") and figures_table("TLS", tls),
    ]


def _traffic(found: Row, way: str) -> str:
    size, count = figures.size(found.get(f"{way}_oct")), figures.count(found.get(f"{way}_cnt"))
    return f"{size} in {count} packets, {figures.size_rate(_rate_of(found, f'{way}_oct'))}"


def _close_form(page: Page, name: str) -> h.Node:
    return folded_form(
        page,
        "Close this connection",
        f"/connections/{path_to(name)}/close",
        "Close it",
        text_field("reason", "Reason", hint="The client is told this, in ASCII letters."),
        is_open="close" in page.query,
        is_dangerous=True,
    )
