"""The tests of `pika_orders.py`: each has a broker to itself, or a vhost on a shared one."""

import pika_orders
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from warrenmq.testing.broker import WarrenBroker
from warrenmq.testing.vhost import WarrenVhost


@pytest.fixture
def channel(warren_vhost: WarrenVhost) -> BlockingChannel:
    return pika_orders.connect(warren_vhost.url)


def test_orders_are_handled_in_their_order(channel: BlockingChannel) -> None:
    for number in range(3):
        pika_orders.place(channel, {"number": number})
    handled: list[object] = []
    assert pika_orders.work(channel, lambda order: handled.append(order["number"])) == 3
    assert handled == [0, 1, 2]


def test_a_refused_order_is_set_aside(channel: BlockingChannel) -> None:
    def refuse(order: dict[str, object]) -> None:
        raise ValueError("no such article")

    pika_orders.place(channel, {"article": "unobtainium"})
    assert pika_orders.work(channel, refuse) == 0
    method, properties, body = channel.basic_get(pika_orders.SET_ASIDE, auto_ack=True)
    assert method is not None and body == b'{"article": "unobtainium"}'
    (death,) = properties.headers["x-death"]
    assert (death["queue"], death["reason"]) == (pika_orders.NEW, "rejected")


def test_a_placed_order_survives_a_crash_of_the_broker(warren_broker: WarrenBroker) -> None:
    pika_orders.place(pika_orders.connect(warren_broker.url), {"number": 7})
    warren_broker.kill()
    warren_broker.start()
    handled: list[object] = []
    pika_orders.work(pika_orders.connect(warren_broker.url), handled.append)
    assert handled == [{"number": 7}]
