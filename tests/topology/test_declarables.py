"""Declarables have Spring AMQP's defaults, know their arguments by name, and refuse bad values."""

import datetime
import re
from collections.abc import Callable
from typing import Any

import pytest

from warrenmq.topology import (
    PERSISTENT,
    TRANSIENT,
    AnonymousQueue,
    Binding,
    ConsistentHashExchange,
    DirectExchange,
    Exchange,
    FanoutExchange,
    HeadersExchange,
    MessageBuilder,
    Queue,
    QueueBuilder,
    RandomExchange,
    TopicExchange,
    Topology,
    base64url_name,
    bind,
)
from warrenmq.topology.arguments import Arguments

# The classes for wrong values, which type checkers find as well.
any_queue: Any = Queue
any_exchange: Any = Exchange
any_binding: Any = Binding
any_topology: Any = Topology


def test_s1_exchanges_are_durable_and_stay_unless_declared_otherwise() -> None:
    exchange = Exchange("e")
    assert (exchange.type, exchange.durable, exchange.auto_delete) == ("direct", True, False)
    assert (exchange.internal, exchange.delayed, exchange.declared_arguments) == (False, False, {})


def test_s2_queues_are_durable_shared_and_stay_unless_declared_otherwise() -> None:
    queue = Queue("q")
    assert (queue.durable, queue.exclusive, queue.auto_delete) == (True, False, False)
    assert (queue.declared_arguments, queue.local_name) == ({}, "q")


def test_s2_a_queue_without_a_name_has_a_local_one_until_the_broker_answers() -> None:
    queue = Queue()
    assert re.fullmatch(r"warren\.gen-[\w-]{22}_awaiting_declaration", queue.local_name)
    assert queue != Queue()
    assert bind(queue).to(FanoutExchange("e")).destination == queue.local_name


def test_s3_messages_are_persistent_with_priority_0_unless_built_otherwise() -> None:
    properties = MessageBuilder.with_body(b"x").build().properties
    assert (properties.delivery_mode, properties.priority) == (PERSISTENT, 0)
    assert (properties.content_type, properties.headers) == ("application/octet-stream", {})


def test_an_anonymous_queue_is_for_one_connection_and_has_a_name_of_its_own() -> None:
    queue = AnonymousQueue()
    assert re.fullmatch(r"warren\.gen-[A-Za-z0-9_-]{22}", queue.name)
    assert (queue.durable, queue.exclusive, queue.auto_delete) == (False, True, True)
    assert queue.declared_arguments == {"x-queue-master-locator": "client-local"}
    assert AnonymousQueue().name != queue.name
    assert AnonymousQueue(base64url_name("orders.")).name.startswith("orders.")
    random = AnonymousQueue(arguments={"x-queue-master-locator": "random"})
    assert random.master_locator == "random"


@pytest.mark.parametrize(
    ("made", "type"),
    [
        (DirectExchange, "direct"),
        (TopicExchange, "topic"),
        (FanoutExchange, "fanout"),
        (HeadersExchange, "headers"),
        (ConsistentHashExchange, "x-consistent-hash"),
        (RandomExchange, "x-random"),
    ],
)
def test_each_class_is_a_type(made: type[Exchange], type: str) -> None:
    """A class only fixes the type, so objects of both forms are equal."""
    assert made("e") == Exchange("e", type=type)
    assert hash(made("e")) == hash(Exchange("e", type=type))
    assert made("e") != Exchange("e", type=type, durable=False)


def test_a_delayed_exchange_is_declared_with_its_type_as_an_argument() -> None:
    exchange = TopicExchange("e", delayed=True, alternate_exchange="lost")
    assert exchange.declared_type == "x-delayed-message"
    table = {"x-delayed-type": "topic", "alternate-exchange": "lost"}
    assert exchange.declared_arguments == table
    assert Exchange("e", type="x-delayed-message", arguments=table) == exchange


def test_an_argument_may_be_given_by_either_name() -> None:
    queue = Queue(
        "q",
        message_ttl=0,
        expires=1,
        max_length=2,
        max_length_bytes=3,
        overflow="reject-publish",
        dead_letter_exchange="",
        dead_letter_routing_key="k",
        max_priority=4,
        single_active_consumer=True,
        lazy=True,
        quorum=True,
        delivery_limit=5,
        master_locator="random",
    )
    table: Arguments = {
        "x-message-ttl": 0,
        "x-expires": 1,
        "x-max-length": 2,
        "x-max-length-bytes": 3,
        "x-overflow": "reject-publish",
        "x-dead-letter-exchange": "",
        "x-dead-letter-routing-key": "k",
        "x-max-priority": 4,
        "x-single-active-consumer": True,
        "x-queue-mode": "lazy",
        "x-queue-type": "quorum",
        "x-delivery-limit": 5,
        "x-queue-master-locator": "random",
    }
    assert queue.declared_arguments == table
    assert Queue("q", arguments=table) == queue
    built = (
        QueueBuilder.durable("q").ttl(0).expires(1).max_length(2).max_length_bytes(3)
        .overflow("reject-publish").dead_letter_exchange("").dead_letter_routing_key("k")
        .max_priority(4).single_active_consumer().lazy().quorum().delivery_limit(5)
        .master_locator("random").build()
    )  # fmt: skip
    assert built == queue


def test_the_builder_makes_other_queues_as_well() -> None:
    built = QueueBuilder.non_durable().exclusive().auto_delete().with_argument("x-a", 1)
    queue = built.with_arguments({"x-b": [2]}).build()
    assert (queue.durable, queue.exclusive, queue.auto_delete) == (False, True, True)
    assert queue.name.startswith("warren.gen-")
    assert queue.declared_arguments == {"x-a": 1, "x-b": [2]}


def test_what_the_broker_must_judge_stays_an_argument() -> None:
    odd: Arguments = {
        "x-message-ttl": "soon",
        "x-queue-mode": "default",
        "x-single-active-consumer": False,
    }
    queue = Queue("q", arguments=odd)
    assert (queue.message_ttl, queue.lazy, queue.arguments) == (None, False, odd)
    assert queue.declared_arguments == odd


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda: any_queue("q", message_ttl="5"), TypeError, "queue 'q': message_ttl is '5', not a whole number"),
        (lambda: any_queue("q", max_length=True), TypeError, "queue 'q': max_length is True, not a whole number"),
        (lambda: any_queue("q", lazy=1), TypeError, "queue 'q': lazy is 1, not true or false"),
        (lambda: any_queue("q", durable=None), TypeError, "queue 'q': durable is None, not true or false"),
        (lambda: any_exchange("e", type=1), TypeError, "exchange 'e': type is 1, not a text"),
        (lambda: any_queue(5), TypeError, "the name of the queue is 5, not a text"),
        (lambda: any_queue("ü" * 128), ValueError, "the name of the queue is longer than 255 bytes"),
        (lambda: any_queue("\ud800"), ValueError, "the name of the queue is '\\ud800', which has half of a surrogate pair"),
        (lambda: any_queue("q", lazy=True, arguments={"x-queue-mode": "default"}), ValueError,
         "queue 'q': lazy and the argument x-queue-mode differ"),
        (lambda: any_queue("q", expires=1, arguments={"x-expires": 2}), ValueError,
         "queue 'q': expires and the argument x-expires differ"),
        (lambda: any_queue("q", arguments={"a": {"b": [1, b""]}}), TypeError,
         "queue 'q': arguments: a: b[1] is b'': an argument is a text, a whole number, a boolean, a list or a table"),
        (lambda: any_queue("q", arguments={"a": 1.5}), TypeError,
         "queue 'q': arguments: a is 1.5: an argument is a text, a whole number, a boolean, a list or a table"),
        (lambda: any_queue("a\nb"), ValueError, "the name of the queue is 'a\\nb', which has a line break"),
        (lambda: any_queue("q", expires=1 << 63), ValueError,
         "queue 'q': x-expires is 9223372036854775808, which has more than 64 bits"),
        (lambda: any_queue("q", arguments=[]), TypeError, "queue 'q': arguments is [], not a table"),
        (lambda: any_exchange(""), ValueError, "the default exchange has no name and is always there"),
        (lambda: any_exchange("e", type="x-delayed-message"), ValueError,
         "exchange 'e': the type x-delayed-message needs the argument x-delayed-type"),
        (lambda: any_binding("", "q"), ValueError, "a binding needs the name of its exchange and of its destination"),
        (lambda: any_binding("e", "q", destination_type="topic"), ValueError, "the destination of a binding is no 'topic'"),
        (lambda: any_topology(Queue("q"), Queue("q", lazy=True)), ValueError, "two different declarations of queue 'q'"),
        (lambda: any_topology("q"), TypeError, "'q' is no exchange, queue or binding"),
    ],
)  # fmt: skip
def test_a_bad_value_is_refused_by_name(
    make: Callable[[], object], error: type[Exception], text: str
) -> None:
    with pytest.raises(error) as caught:
        make()
    assert str(caught.value) == text


def test_bindings_are_built_as_sentences() -> None:
    queue = Queue("q")
    headers = bind(queue).to(HeadersExchange("h"))
    assert [
        bind(queue).to(TopicExchange("t")).with_("a.#"),
        bind(queue).to(DirectExchange("d")).with_queue_name(),
        bind(queue).to(FanoutExchange("f")),
        bind(queue).to(RandomExchange("r")),
        bind(queue).to(ConsistentHashExchange("c")).with_weight(3),
        bind(queue).to(Exchange("o", type="x-other")).with_("k", {"a": 1}),
        bind(DirectExchange("d")).to(TopicExchange("t")).with_("b.*"),
        headers.where("a").exists(),
        headers.where("a").matches(1),
        headers.where_all({"a": 1, "b": "x"}),
        headers.where_any(["a", "b"]),
    ] == [
        Binding("t", "q", "a.#"),
        Binding("d", "q", "q"),
        Binding("f", "q"),
        Binding("r", "q"),
        Binding("c", "q", "3"),
        Binding("o", "q", "k", {"a": 1}),
        Binding("t", "d", "b.*", destination_type="exchange"),
        Binding("h", "q", arguments={"x-match": "all", "a": None}),
        Binding("h", "q", arguments={"x-match": "all", "a": 1}),
        Binding("h", "q", arguments={"x-match": "all", "a": 1, "b": "x"}),
        Binding("h", "q", arguments={"x-match": "any", "a": None, "b": None}),
    ]


def test_bindings_whose_values_differ_for_a_broker_are_different() -> None:
    assert Binding("h", "q", arguments={"a": True}) != Binding("h", "q", arguments={"a": 1})
    assert Binding("h", "q", arguments={"a": [None]}) != Binding("h", "q", arguments={"a": None})


def test_a_topology_keeps_what_it_gets_once_and_in_the_order_of_declaration() -> None:
    queue, exchange = Queue("q"), FanoutExchange("e")
    binding = bind(queue).to(exchange)
    topology = Topology(binding, queue, Topology(exchange, queue), binding)
    assert list(topology) == [exchange, queue, binding]
    assert topology == Topology(exchange, queue, binding)
    assert topology != Topology(exchange, queue)
    assert len(topology) == 3


def test_a_message_is_built_step_by_step() -> None:
    at = datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC)
    message = (
        MessageBuilder.with_text("ä")
        .set(type="order", timestamp=at, expiration=500)
        .header("a", [1, "x"])
        .delay(1000)
        .transient()
        .build()
    )
    properties = message.properties
    assert message.body == "ä".encode()
    assert (properties.content_type, properties.content_encoding) == ("text/plain", "UTF-8")
    assert (properties.delivery_mode, properties.headers) == (
        TRANSIENT,
        {"a": [1, "x"], "x-delay": 1000},
    )
    with pytest.raises(ValueError, match="no time zone"):
        MessageBuilder.with_body(b"").set(timestamp=at.replace(tzinfo=None))
