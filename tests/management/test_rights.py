"""Nobody sees or touches over HTTP what RabbitMQ would hide."""

import re

from fastapi.routing import APIRoute

from tests.management.rights import Broker, is_own, requests
from tests.support.brokers.http_api import HttpNode
from tests.support.rabbitmq.http_api import RabbitmqApi
from warrenmq.management.app import all_routes

ROUTES = [route for route in all_routes() if route.path.startswith("/api/")]


def route_of(method: str, path: str) -> APIRoute:
    """The route that takes a request."""
    shown = re.sub(r"[{}]", "", f"/api/{path}")
    for route in ROUTES:
        if method in (route.methods or ()) and route.path_regex.match(shown):
            return route
    raise AssertionError(f"no route for {method} {path}")


def test_each_route_has_a_row() -> None:
    known = {id(route_of(row["method"], row["path"])) for row in requests()}
    missing = [f"{route.methods} {route.path}" for route in ROUTES if id(route) not in known]
    assert missing == []


def test_each_difference_has_a_reason() -> None:
    """A row of an endpoint that only warren has needs none."""
    assert [row for row in requests() if is_own(row) and "statuses" in row] == []


def test_each_user_gets_the_statuses_of_its_tag(http_node: HttpNode) -> None:
    different = []
    with Broker(f"{http_node.url}api/", http_node.node.port).prepared() as broker:
        for row in requests():
            expected = row.get("warren") or row["statuses"]
            found = broker.statuses(row)
            if found != expected:
                different.append(f"{row['method']} {row['path']}: {found}, not {expected}")
    assert not different, "\n".join(different)


def test_the_recorded_statuses_are_rabbitmqs(rabbitmq_api: RabbitmqApi) -> None:
    with Broker(rabbitmq_api.address, rabbitmq_api.amqp_port).prepared() as broker:
        for row in requests():
            if "statuses" in row:
                assert broker.statuses(row) == row["statuses"], row
