"""basic.publish: checks, mandatory, return, CC and BCC, edits of properties (protocol 5.5, 6)."""

import pytest

from tests.support.brokers.amqp_frames import frame, header_frame, method_frame, table
from tests.support.brokers.amqp_peer import Message
from tests.support.brokers.fixtures import Amqp
from warrenmq.broker.definitions.settings import Settings
from warrenmq.wire.field_table import Field, decode_table, encode_table
from warrenmq.wire.methods import (
    BasicAck,
    BasicPublish,
    ExchangeDelete,
    ExchangeDeleteOk,
    QueueBind,
    QueueUnbind,
    QueueUnbindOk,
)
from warrenmq.wire.properties import Properties

PUBLISH = BasicPublish()


def longstr(text: str) -> Field:
    return Field(ord("S"), text.encode())


def keys(*names: str) -> Field:
    return Field(ord("A"), [longstr(name) for name in names])


def with_headers(**headers: Field) -> bytes:
    return Properties(headers=encode_table(dict(headers))).encode()


# -- refusals --------------------------------------------------------------------------------------


def test_immediate(amqp: Amqp) -> None:
    channel = amqp.channel()
    channel.peer.send(method_frame(1, BasicPublish(b"", b"q", False, True)), header_frame(1, 0))
    channel.peer.closed_with(540, "immediate=true", 60, 40)


def test_missing_exchange_is_only_a_channel_error(amqp: Amqp) -> None:
    peer = amqp.connect()
    channel, other = peer.channel(), peer.channel()
    missing = amqp.name("x")
    channel.publish(b"k", b"body", exchange=missing)
    channel.closed_with(404, f"no exchange '{missing.decode()}' in vhost '/'", PUBLISH)
    other.declare(exclusive=True)


def test_missing_exchange_with_a_body_in_many_frames(amqp: Amqp) -> None:
    peer = amqp.connect()
    channel = peer.channel()
    missing = amqp.name("x")
    channel.peer.send(
        method_frame(1, BasicPublish(missing, b"k")),
        header_frame(1, 4),
        *[frame(3, 1, b"x") for _ in range(4)],
    )
    channel.closed_with(404, f"no exchange '{missing.decode()}' in vhost '/'", PUBLISH)
    again = peer.channel(1)
    queue = again.declare(exclusive=True).queue
    again.publish(queue, b"fine")
    assert again.get(queue).body == b"fine"


def test_internal_exchange(amqp: Amqp) -> None:
    channel = amqp.channel()
    name = amqp.name("x")
    channel.exchange(name, internal=True)
    channel.publish(b"k", exchange=name)
    channel.closed_with(
        403, f"cannot publish to internal exchange '{name.decode()}' in vhost '/'", PUBLISH
    )


def test_the_same_publish_is_refused_again(amqp: Amqp) -> None:
    peer = amqp.connect()
    missing = amqp.name("x")
    for _ in range(2):
        channel = peer.channel()
        channel.publish(b"k", exchange=missing)
        channel.closed_with(404, f"no exchange '{missing.decode()}' in vhost '/'", PUBLISH)


def test_exchange_deleted_between_two_publishes(amqp: Amqp) -> None:
    channel = amqp.channel()
    name = amqp.name("x")
    channel.exchange(name)
    channel.publish(b"k", exchange=name)
    other = channel.peer.channel()
    other.send(ExchangeDelete(name))
    other.expect(ExchangeDeleteOk)
    channel.publish(b"k", exchange=name)
    channel.closed_with(404, f"no exchange '{name.decode()}' in vhost '/'", PUBLISH)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no_integer"),
        ("abc", "no_integer"),
        (" 5", "no_integer"),
        ("5x", '{leftover_string,"x"}'),
        ("5.0", '{leftover_string,".0"}'),
        ("-1", "{value_negative,-1}"),
        ("315360000001", "{value_too_large,315360000001}"),
        ("99999999999999999999999", "{value_too_large,99999999999999999999999}"),
    ],
)
def test_bad_expiration(amqp: Amqp, text: str, reason: str) -> None:
    channel = amqp.channel()
    channel.publish(b"k", properties=Properties(expiration=text.encode()).encode())
    channel.closed_with(406, f"invalid expiration '{text}': {reason}", PUBLISH)


@pytest.mark.parametrize("text", ["0", "315360000000", "+5", "007"])
def test_good_expiration(amqp: Amqp, text: str) -> None:
    channel = amqp.channel()
    channel.publish(amqp.name(), properties=Properties(expiration=text.encode()).encode())
    channel.quiet()


@pytest.mark.parametrize("mode", [0, 3, 255])
def test_unknown_delivery_mode(amqp: Amqp, mode: int) -> None:
    channel = amqp.channel()
    channel.publish(b"k", properties=Properties(delivery_mode=mode).encode())
    channel.closed_with(406, f"invalid message: {{delivery_mode_unknown,{mode}}}", PUBLISH)


@pytest.mark.parametrize("name", ["CC", "BCC"])
def test_copies_must_be_an_array(amqp: Amqp, name: str) -> None:
    channel = amqp.channel()
    channel.publish(b"k", properties=with_headers(**{name: longstr("q")}))
    channel.closed_with(
        406, f'invalid message: {{unacceptable_type_in_header,"{name}",longstr}}', PUBLISH
    )


def test_somebody_elses_user_id(amqp: Amqp) -> None:
    channel = amqp.channel()
    properties = Properties(user_id=b"guest").encode()
    queue = channel.declare(amqp.name(), exclusive=True).queue
    channel.publish(queue, properties=properties)
    assert channel.get(queue).raw == properties
    channel.publish(b"k", properties=Properties(user_id=b"other").encode())
    channel.closed_with(
        406, "user_id property set to 'other' but authenticated user was 'guest'", PUBLISH
    )


def test_an_impersonator_may_use_any_user_id(amqp: Amqp) -> None:
    amqp.engine()
    channel = amqp.connect(user=b"actor").channel()
    channel.publish(b"k", properties=Properties(user_id=b"other").encode())
    channel.quiet()


@pytest.mark.parametrize(
    "properties",
    [
        b"\x80\x00",
        b"\x80\x00\x05abc",
        b"\x00\x00\x00",
        b"\x20\x00\xff\xff\xff\xff",
        b"\x10\x00",
        b"\x00\x40\x00",
    ],
)
def test_undecodable_properties(amqp: Amqp, properties: bytes) -> None:
    channel = amqp.channel()
    channel.peer.send(method_frame(1, BasicPublish(b"", b"q")), header_frame(1, 0, properties))
    channel.peer.closed_with(541, "")


def test_message_over_the_size_limit(amqp: Amqp) -> None:
    amqp.configure(Settings(max_message_size=1000))
    channel = amqp.channel()
    queue = channel.declare(exclusive=True).queue
    channel.publish(queue, b"x" * 1000)
    channel.peer.send(method_frame(1, BasicPublish(b"", b"q")), header_frame(1, 1001))
    channel.closed_with(406, "message size 1001 is larger than configured max size 1000", PUBLISH)


def test_message_over_the_default_size_limit_is_refused_at_its_header(amqp: Amqp) -> None:
    amqp.departure("RabbitMQ takes the whole body first")
    channel = amqp.channel()
    channel.peer.send(method_frame(1, BasicPublish(b"", b"q")), header_frame(1, 134217729))
    channel.closed_with(
        406, "message size 134217729 is larger than configured max size 134217728", PUBLISH
    )


def test_message_of_more_than_63_bits(amqp: Amqp) -> None:
    amqp.departure("RabbitMQ waits for the body")
    channel = amqp.channel()
    channel.peer.send(method_frame(1, BasicPublish(b"", b"q")), header_frame(1, 2**64 - 1))
    channel.closed_with(
        406,
        "message size 18446744073709551615 is larger than configured max size 134217728",
        PUBLISH,
    )


# -- mandatory -------------------------------------------------------------------------------------


def test_unroutable_is_dropped(amqp: Amqp) -> None:
    channel = amqp.channel()
    channel.publish(amqp.name(), b"nowhere")
    channel.quiet()


def test_mandatory_is_returned_as_it_was(amqp: Amqp) -> None:
    channel = amqp.channel()
    properties = Properties(
        b"text/plain", headers=table(a=1), delivery_mode=2, message_id=b"m"
    ).encode()
    body = b"x" * 300_000
    channel.publish(b"some.key", body, properties, exchange=b"amq.topic", mandatory=True)
    found = channel.message()
    returned = found.returned
    assert (returned.reply_code, returned.reply_text) == (312, b"NO_ROUTE")
    assert (returned.exchange, returned.routing_key) == (b"amq.topic", b"some.key")
    assert (found.raw, found.body) == (properties, body)


def test_mandatory_and_routable_is_not_returned(amqp: Amqp) -> None:
    channel = amqp.channel()
    queue = channel.declare(exclusive=True).queue
    channel.publish(queue, b"x", mandatory=True)
    channel.quiet()
    assert channel.drain(queue) == [b"x"]


def test_return_goes_out_before_the_confirm(amqp: Amqp) -> None:
    channel = amqp.channel()
    channel.confirm_select()
    queue = channel.declare(exclusive=True).queue
    channel.publish(queue, b"routable", mandatory=True)
    channel.publish(amqp.name(), b"not routable", mandatory=True)
    channel.publish(queue, b"routable", mandatory=True)
    seen: list[str] = []
    acked = 0
    while acked < 3:
        item = channel.event()
        if isinstance(item, Message):
            assert item.body == b"not routable"
            assert acked < 2
            seen.append("return")
        else:
            assert isinstance(item, BasicAck)
            acked = item.delivery_tag if item.multiple else acked + 1
    assert seen == ["return"]


def test_mandatory_is_satisfied_by_an_alternate_exchange(amqp: Amqp) -> None:
    channel = amqp.channel()
    alternate, main = amqp.name("x"), amqp.name("x")
    channel.exchange(alternate, b"fanout")
    channel.exchange(main, arguments=table(alternate__exchange=alternate.decode()))
    queue = channel.declare(exclusive=True).queue
    channel.bind(queue, alternate)
    channel.publish(b"k", b"x", exchange=main, mandatory=True)
    channel.quiet()
    message = channel.get(queue)
    assert (message.got.exchange, message.got.routing_key) == (main, b"k")


def test_an_alternate_exchange_is_not_used_when_a_bound_exchange_leads_nowhere(amqp: Amqp) -> None:
    channel = amqp.channel()
    alternate, main, dead_end = amqp.name("x"), amqp.name("x"), amqp.name("x")
    channel.exchange(alternate, b"fanout")
    channel.exchange(main, arguments=table(alternate__exchange=alternate.decode()))
    channel.exchange(dead_end, b"fanout")
    channel.bind_exchange(dead_end, main, b"k")
    queue = channel.declare(exclusive=True).queue
    channel.bind(queue, alternate)
    channel.publish(b"k", b"x", exchange=main, mandatory=True)
    assert channel.message().returned.reply_code == 312
    assert channel.is_empty(queue)


def test_missing_alternate_exchange_is_ignored(amqp: Amqp) -> None:
    channel = amqp.channel()
    main = amqp.name("x")
    channel.exchange(main, arguments=table(alternate__exchange=amqp.name("x").decode()))
    channel.publish(b"k", b"x", exchange=main, mandatory=True)
    assert channel.message().returned.exchange == main


def test_alternate_exchanges_in_a_circle(amqp: Amqp) -> None:
    channel = amqp.channel()
    first, second = amqp.name("x"), amqp.name("x")
    for name, other in ((first, second), (second, first)):
        channel.exchange(name, arguments=table(alternate__exchange=other.decode()))
    channel.publish(b"k", b"x", exchange=first, mandatory=True)
    assert channel.message().returned.exchange == first


# -- routing ---------------------------------------------------------------------------------------


def test_a_queue_gets_a_message_once_however_many_bindings_match(amqp: Amqp) -> None:
    channel = amqp.channel()
    exchange = amqp.name("x")
    channel.exchange(exchange, b"topic")
    queue = channel.declare(exclusive=True).queue
    for key in (b"a.*", b"#", b"a.b", b"*.b"):
        channel.bind(queue, exchange, key)
    channel.publish(b"a.b", b"once", exchange=exchange)
    assert channel.drain(queue) == [b"once"]


def test_bindings_made_and_unmade_between_equal_publishes(amqp: Amqp) -> None:
    channel = amqp.channel()
    exchange = amqp.name("x")
    channel.exchange(exchange)
    queue = channel.declare(amqp.name(), exclusive=True).queue
    channel.publish(b"k", b"1", exchange=exchange)
    channel.bind(queue, exchange, b"k")
    channel.publish(b"k", b"2", exchange=exchange)
    channel.send(QueueUnbind(queue, exchange, b"k"))
    channel.expect(QueueUnbindOk)
    channel.publish(b"k", b"3", exchange=exchange)
    assert channel.drain(queue) == [b"2"]
    channel.delete(queue)
    channel.publish(queue, b"4")
    channel.declare(queue, exclusive=True)
    channel.publish(queue, b"5")
    assert channel.drain(queue) == [b"5"]


def test_exchange_to_exchange_keeps_key_and_name(amqp: Amqp) -> None:
    channel = amqp.channel()
    outer, inner = amqp.name("x"), amqp.name("x")
    channel.exchange(outer, b"topic")
    channel.exchange(inner, b"topic", internal=True)
    channel.bind_exchange(inner, outer, b"a.#")
    channel.bind_exchange(outer, inner, b"#")
    queue = channel.declare(exclusive=True).queue
    channel.bind(queue, inner, b"*.b")
    channel.publish(b"a.b", b"through", exchange=outer)
    message = channel.get(queue)
    assert (message.got.exchange, message.got.routing_key) == (outer, b"a.b")
    assert channel.is_empty(queue)


@pytest.mark.parametrize(
    ("pattern", "matching", "others"),
    [
        (b"#", [b"", b"a", b"a.b", b"a..b"], []),
        (b"", [b""], [b"a", b"."]),
        (b"*", [b"a", b"#", b"*"], [b"", b"a.b"]),
        (b"a.#", [b"a", b"a.", b"a.b.c"], [b"b", b"ab", b""]),
        (b"a.*.b", [b"a..b", b"a.x.b"], [b"a.b", b"a.x.y.b"]),
        (b"#.a.#", [b"a", b"x.a", b"a.y", b"x.a.y"], [b"x", b""]),
        (b"*.#", [b"a", b"a.b", b"."], [b""]),
    ],
)
def test_topic_patterns(
    amqp: Amqp, pattern: bytes, matching: list[bytes], others: list[bytes]
) -> None:
    channel = amqp.channel()
    exchange = amqp.name("x")
    channel.exchange(exchange, b"topic")
    queue = channel.declare(exclusive=True).queue
    channel.bind(queue, exchange, pattern)
    for key in matching + others:
        channel.publish(key, key, exchange=exchange)
    assert channel.drain(queue) == matching


@pytest.mark.parametrize(
    ("arguments", "headers", "is_match"),
    [
        (b"", b"", True),
        (table(x__match="any"), table(a=1), False),
        (table(a=1, b="x"), table(a=1, b="x", c=3), True),
        (table(a=1, b="x"), table(a=1), False),
        (table(x__match="any", a=1, b="x"), table(b="x"), True),
        (table(x__match="any", a=1, b="x"), table(a=2), False),
        (table(a=None), table(a="whatever"), True),
        (table(a=1), encode_table({"a": Field(ord("l"), 1)}), True),
        (table(a=1), encode_table({"a": Field(ord("d"), 1.0)}), True),
        (table(a=1), table(a=True), False),
        (table(a=1), table(a="1"), False),
        (table(x__ignored=1), b"", True),
        (table(x__match="all-with-x", x__seen=1), b"", False),
        (table(x__match="any-with-x", x__seen=1), table(x__seen=1), True),
    ],
)  # fmt: skip
def test_headers_exchange(amqp: Amqp, arguments: bytes, headers: bytes, is_match: bool) -> None:
    channel = amqp.channel()
    exchange = amqp.name("x")
    channel.exchange(exchange, b"headers")
    queue = channel.declare(exclusive=True).queue
    channel.bind(queue, exchange, b"ignored", arguments)
    channel.publish(b"k", b"x", Properties(headers=headers).encode(), exchange=exchange)
    assert channel.drain(queue) == ([b"x"] if is_match else [])


def test_equal_publishes_with_different_headers(amqp: Amqp) -> None:
    channel = amqp.channel()
    exchange = amqp.name("x")
    channel.exchange(exchange, b"headers")
    queue = channel.declare(exclusive=True).queue
    channel.bind(queue, exchange, b"", table(a=1))
    for number in (1, 2, 1, 1, 2):
        channel.publish(
            b"",
            str(number).encode(),
            Properties(headers=table(a=number)).encode(),
            exchange=exchange,
        )
    channel.publish(b"", b"none", exchange=exchange)
    assert channel.drain(queue) == [b"1", b"1", b"1"]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (
            table(x__match="some"),
            'Invalid x-match field value <<"some">>; expected all, any, all-with-x, or any-with-x',
        ),
        (table(x__match=1), "Invalid x-match field type signedint (value 1); expected longstr"),
    ],
)
def test_bad_x_match(amqp: Amqp, arguments: bytes, text: str) -> None:
    channel = amqp.channel()
    exchange = amqp.name("x")
    channel.exchange(exchange, b"headers")
    queue = channel.declare(exclusive=True).queue
    channel.refused(QueueBind(queue, exchange, b"", False, arguments), 406, text)


# -- CC and BCC ------------------------------------------------------------------------------------


def test_carbon_copies(amqp: Amqp) -> None:
    channel = amqp.channel()
    queues = [channel.declare(amqp.name(), exclusive=True).queue for _ in range(4)]
    to, copy, blind, other = queues
    channel.publish(other, b"before")
    headers = {
        "CC": Field(ord("A"), [longstr(copy.decode()), Field(ord("I"), 5), longstr(to.decode())]),
        "BCC": keys(blind.decode()),
        "z": longstr("kept"),
    }
    channel.publish(to, b"x", Properties(b"t", headers=encode_table(headers), app_id=b"a").encode())
    channel.publish(to, b"y")
    for queue in (to, copy, blind):
        message = channel.get(queue, no_ack=True)
        assert message.body == b"x"
        assert message.got.routing_key == to
        properties = message.properties
        assert (properties.content_type, properties.app_id) == (b"t", b"a")
        assert properties.headers is not None
        assert list(decode_table(properties.headers)) == ["CC", "z"]
    assert channel.drain(to) == [b"y"]
    assert channel.drain(copy) == []
    assert channel.drain(other) == [b"before"]


def test_equal_publishes_with_and_without_copies(amqp: Amqp) -> None:
    channel = amqp.channel()
    to, copy = (channel.declare(amqp.name(), exclusive=True).queue for _ in range(2))
    copies = with_headers(CC=keys(copy.decode()))
    for body, properties in (
        (b"1", copies),
        (b"2", b"\0\0"),
        (b"3", copies),
        (b"4", copies),
        (b"5", b"\0\0"),
    ):
        channel.publish(to, body, properties)
    assert channel.drain(to) == [b"1", b"2", b"3", b"4", b"5"]
    assert channel.drain(copy) == [b"1", b"3", b"4"]


def test_copies_count_for_mandatory(amqp: Amqp) -> None:
    channel = amqp.channel()
    copy = channel.declare(amqp.name(), exclusive=True).queue
    channel.publish(amqp.name(), b"x", with_headers(BCC=keys(copy.decode())), mandatory=True)
    channel.quiet()
    assert channel.drain(copy) == [b"x"]


def test_copies_on_a_topic_exchange(amqp: Amqp) -> None:
    channel = amqp.channel()
    exchange = amqp.name("x")
    channel.exchange(exchange, b"topic")
    queue = channel.declare(exclusive=True).queue
    channel.bind(queue, exchange, b"b.*")
    channel.publish(b"a.x", b"x", with_headers(CC=keys("b.x", "b.y")), exchange=exchange)
    assert channel.drain(queue) == [b"x"]


def test_lower_case_cc_is_just_a_header(amqp: Amqp) -> None:
    channel = amqp.channel()
    queue, copy = (channel.declare(amqp.name(), exclusive=True).queue for _ in range(2))
    properties = with_headers(cc=keys(copy.decode()))
    channel.publish(queue, b"x", properties)
    assert channel.get(queue).raw == properties
    assert channel.is_empty(copy)
