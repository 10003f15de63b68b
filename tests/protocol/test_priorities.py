"""x-max-priority: order, returns, limits, expiry and counts over the levels (protocol 7.1, 7.2).

A body says which priority its message has: `5b` has 5, and `-b` has none.
"""

import random
import string

import pytest

from tests.support.brokers.amqp_frames import table
from tests.support.brokers.amqp_peer import ChannelPeer, Message
from tests.support.brokers.fixtures import Amqp
from warrenmq.wire.field_table import Field, encode_table
from warrenmq.wire.methods import (
    BasicAck,
    BasicGet,
    BasicNack,
    BasicRecover,
    BasicRecoverOk,
    QueueDeclare,
    QueueDelete,
    QueueDeleteOk,
    QueuePurge,
    QueuePurgeOk,
    TxCommit,
    TxCommitOk,
    TxRollback,
    TxRollbackOk,
    TxSelect,
    TxSelectOk,
)
from warrenmq.wire.properties import Properties

KINDS = pytest.mark.parametrize(
    ("durable", "mode"),
    [(False, "default"), (True, "default"), (True, "lazy")],
    ids=["transient", "persistent", "lazy"],
)


def priority_queue(
    amqp: Amqp, highest: int = 9, durable: bool = False, **arguments: object
) -> tuple[ChannelPeer, bytes]:
    """A channel, and a queue with the levels 0 to `highest`."""
    channel = amqp.channel()
    whole = table(x__max__priority=highest, **arguments)
    queue = channel.declare(
        amqp.name(), durable=durable, exclusive=not durable, arguments=whole
    ).queue
    return channel, queue


def priority_of(word: str) -> int | None:
    digits = word.rstrip(string.ascii_lowercase)
    return int(digits) if digits.isdigit() else None


def put(
    channel: ChannelPeer,
    queue: bytes,
    words: str,
    durable: bool = False,
    expiration: bytes | None = None,
) -> None:
    """Publish the words, each with its priority."""
    for word in words.split():
        properties = Properties(
            delivery_mode=2 if durable else None,
            priority=priority_of(word),
            expiration=expiration,
        )
        channel.publish(queue, word.encode(), properties.encode())


def drained(channel: ChannelPeer, queue: bytes) -> str:
    return b" ".join(channel.drain(queue)).decode()


def delivered(channel: ChannelPeer, count: int) -> str:
    return b" ".join(channel.bodies(count)).decode()


def take(channel: ChannelPeer, queue: bytes, count: int) -> dict[str, int]:
    """Get messages without acking; returns their tags by body."""
    found = [channel.get(queue) for _ in range(count)]
    return {message.body.decode(): message.got.delivery_tag for message in found}


# -- the argument ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tag", "value", "reason"),
    [
        ("I", 256, "{max_value_exceeded,256}"),
        ("l", 2**40, f"{{max_value_exceeded,{2**40}}}"),
        ("I", -1, "{value_negative,-1}"),
        ("S", b"5", '"expected integer, got longstr"'),
        ("d", 5.0, '"expected integer, got double"'),
        ("t", True, '"expected integer, got bool"'),
    ],
)
def test_bad_maximum(amqp: Amqp, tag: str, value: object, reason: str) -> None:
    name = amqp.name()
    method = QueueDeclare(name)
    method.arguments = encode_table({"x-max-priority": Field(ord(tag), value)})
    text = f"invalid arg 'x-max-priority' for queue '{name.decode()}' in vhost '/': {reason}"
    amqp.channel().refused(method, 406, text)


@pytest.mark.parametrize(
    ("before", "after", "received", "current"),
    [
        (table(x__max__priority=5), table(x__max__priority=6), "'6'", "'5'"),
        (table(x__max__priority=5), b"", "none", "the value '5' of type 'signedint'"),
        (b"", table(x__max__priority=5), "the value '5' of type 'signedint'", "none"),
        (table(x__max__priority=0), b"", "none", "the value '0' of type 'signedint'"),
    ],
)
def test_the_maximum_is_fixed_by_the_first_declaration(
    amqp: Amqp, before: bytes, after: bytes, received: str, current: str
) -> None:
    channel = amqp.channel()
    name = amqp.name()
    channel.declare(name, exclusive=True, arguments=before)
    text = (
        f"inequivalent arg 'x-max-priority' for queue '{name.decode()}' in vhost '/': "
        f"received {received} but current is {current}"
    )
    channel.refused(QueueDeclare(name, False, False, True, False, False, after), 406, text)


# -- order -----------------------------------------------------------------------------------------


@KINDS
@pytest.mark.parametrize("highest", [0, 1, 5, 255])
def test_the_highest_go_first_and_each_level_in_order(
    amqp: Amqp, durable: bool, mode: str, highest: int
) -> None:
    """A priority above the maximum counts as the maximum, and none as 0."""
    channel, queue = priority_queue(amqp, highest, durable, x__queue__mode=mode)
    words = "0a 5b 1c 255d -e 4f 254g 5h 2i 255j -k 0l 6m 1n"
    channel.confirm_select()
    put(channel, queue, words, durable)
    channel.confirms(14)
    by_level = sorted(words.split(), key=lambda word: -min(priority_of(word) or 0, highest))
    assert drained(channel, queue) == " ".join(by_level)
    channel.delete(queue)


@KINDS
def test_a_consumer_gets_the_waiting_messages_in_that_order(
    amqp: Amqp, durable: bool, mode: str
) -> None:
    channel, queue = priority_queue(amqp, 9, durable, x__queue__mode=mode)
    channel.confirm_select()
    words = [f"{number * 7 % 4}x" for number in range(400)]
    put(channel, queue, " ".join(words), durable)
    channel.confirms(400)
    channel.consume(queue, no_ack=True)
    assert delivered(channel, 400).split() == sorted(words, reverse=True)
    channel.delete(queue)


def test_the_priority_is_kept_in_the_properties(amqp: Amqp) -> None:
    """Also one above the maximum."""
    channel, queue = priority_queue(amqp, 2)
    put(channel, queue, "200a 1b -c")
    found = [channel.get(queue).properties.priority for _ in range(3)]
    assert found == [200, 1, None]


def test_a_dead_letter_keeps_its_priority(amqp: Amqp) -> None:
    channel, target = priority_queue(amqp)
    source = channel.declare(
        exclusive=True,
        arguments=table(
            x__dead__letter__exchange="", x__dead__letter__routing__key=target.decode()
        ),
    ).queue
    put(channel, source, "0a 5b 9c")
    for tag in take(channel, source, 3).values():
        channel.reject(tag, requeue=False)
    amqp.eventually(lambda: channel.count(target) == 3)
    assert drained(channel, target) == "9c 5b 0a"


# -- consumers -------------------------------------------------------------------------------------


def test_room_goes_to_the_highest(amqp: Amqp) -> None:
    """What a consumer has, it keeps; each ack makes room for the highest that waits."""
    channel, queue = priority_queue(amqp)
    channel.qos(2)
    channel.consume(queue)
    put(channel, queue, "0a 1b 0c 9d 5e 9f")
    assert delivered(channel, 2) == "0a 1b"
    assert channel.count(queue) == 4
    channel.ack(1)
    assert delivered(channel, 1) == "9d"
    channel.ack(3, multiple=True)
    assert delivered(channel, 2) == "9f 5e"
    channel.ack(5)
    assert delivered(channel, 1) == "0c"
    channel.quiet()


def test_more_room_than_a_level_has_messages(amqp: Amqp) -> None:
    channel, queue = priority_queue(amqp)
    put(channel, queue, "0a 5b 9c 0d 5e 0f")
    channel.qos(4)
    channel.consume(queue)
    assert delivered(channel, 4) == "9c 5b 5e 0a"
    channel.quiet()
    channel.ack(0, multiple=True)
    assert delivered(channel, 2) == "0d 0f"


def test_consumers_take_turns_over_all_levels(amqp: Amqp) -> None:
    channel, queue = priority_queue(amqp)
    put(channel, queue, "0a 9b 5c 9d")
    assert channel.count(queue) == 4
    first, second = (channel.peer.channel() for _ in range(2))
    for consumer in (first, second):
        consumer.qos(1)
        consumer.consume(queue)
    assert (delivered(first, 1), delivered(second, 1)) == ("9b", "9d")
    second.ack(1)
    assert delivered(second, 1) == "5c"
    first.ack(1)
    assert delivered(first, 1) == "0a"


# -- returns ---------------------------------------------------------------------------------------


@KINDS
@pytest.mark.parametrize("way", ["each", "all", "recover", "channel", "connection"])
def test_returns_go_to_their_places_within_their_level(
    amqp: Amqp, durable: bool, mode: str, way: str
) -> None:
    """They are redelivered; newer messages of a level come after them."""
    reader, queue = priority_queue(amqp, 9, True, x__queue__mode=mode)
    # Transient messages in a durable queue, or the queue would go with its connection.
    put(reader, queue, "0a 9b 5c 0d 9e 5f", durable)
    tags = take(reader, queue, 5)
    assert list(tags) == ["9b", "9e", "5c", "5f", "0a"]
    channel = amqp.channel()
    put(channel, queue, "9x 5y 0z", durable)
    amqp.eventually(lambda: channel.count(queue) == 4)
    match way:
        case "each":
            for word in ("9e", "0a", "5f", "9b", "5c"):
                reader.nack(tags[word])
        case "all":
            reader.nack(0, multiple=True)
        case "recover":
            reader.send(BasicRecover(True))
            reader.expect(BasicRecoverOk)
        case "channel":
            reader.close()
        case _:
            reader.peer.drop()
    amqp.eventually(lambda: channel.count(queue) == 9)
    found = [channel.get(queue) for _ in range(9)]
    assert b" ".join(message.body for message in found) == b"9b 9e 9x 5c 5f 5y 0a 0d 0z"
    again = {message.body.decode() for message in found if message.got.redelivered}
    assert again == set(tags)
    channel.delete(queue)


def test_a_return_goes_to_a_consumer_before_what_is_lower(amqp: Amqp) -> None:
    channel, queue = priority_queue(amqp)
    put(channel, queue, "5a 5b 0c")
    channel.qos(1)
    channel.consume(queue)
    assert delivered(channel, 1) == "5a"
    put(channel, queue, "9d")
    channel.nack(1)
    assert delivered(channel, 1) == "9d"
    channel.ack(2)
    message = channel.message()
    assert (message.body, message.deliver.redelivered) == (b"5a", True)
    channel.ack(3)
    message = channel.message()
    assert (message.body, message.deliver.redelivered) == (b"5b", False)


# -- limits ----------------------------------------------------------------------------------------


@KINDS
@pytest.mark.parametrize(
    ("limit", "words", "kept"),
    [
        ({"x__max__length": 3}, "0a 9b 5c 0d 5e", "0a 0d 5e"),
        ({"x__max__length": 2}, "0a 0b 9c", "0a 0b"),
        ({"x__max__length": 2}, "9a 5b 0c 0d 0e", "0d 0e"),
        ({"x__max__length": 0}, "0a 9b", ""),
        ({"x__max__length__bytes": 9}, "0aaa 9bbb 5cc 0d", "0aaa 5cc 0d"),
        # The large one never fits, and takes only what is as high or higher with it.
        ({"x__max__length__bytes": 8}, "0a 5b 9c 5ddddddd", "0a"),
    ],
)
def test_the_head_is_dropped_and_that_is_the_highest(
    amqp: Amqp, durable: bool, mode: str, limit: dict[str, object], words: str, kept: str
) -> None:
    channel, queue = priority_queue(amqp, 9, durable, x__queue__mode=mode, **limit)
    channel.confirm_select()
    put(channel, queue, words, durable)
    channel.confirms(len(words.split()))
    amqp.eventually(lambda: channel.count(queue) == len(kept.split()))
    assert sorted(drained(channel, queue).split()) == sorted(kept.split())
    channel.delete(queue)


def test_a_return_over_the_limit_drops_the_highest(amqp: Amqp) -> None:
    """That need not be the one that returns."""
    channel, queue = priority_queue(amqp, x__max__length=3)
    put(channel, queue, "0a 5b 9c")
    tags = take(channel, queue, 3)
    put(channel, queue, "0d 5e 5f")
    channel.nack(tags["0a"])
    assert channel.count(queue) == 3
    channel.nack(tags["9c"])
    channel.nack(tags["5b"])
    assert drained(channel, queue) == "5f 0a 0d"


def test_what_is_dropped_becomes_a_dead_letter(amqp: Amqp) -> None:
    channel = amqp.channel()
    dead = channel.declare(exclusive=True).queue
    arguments = table(
        x__max__priority=9,
        x__max__length=2,
        x__dead__letter__exchange="",
        x__dead__letter__routing__key=dead.decode(),
    )
    queue = channel.declare(exclusive=True, arguments=arguments).queue
    put(channel, queue, "0a 5b 9c 5d 0e")
    amqp.eventually(lambda: channel.count(dead) == 3)
    assert drained(channel, dead) == "9c 5b 5d"
    assert drained(channel, queue) == "0a 0e"


@pytest.mark.parametrize("overflow", ["reject-publish", "reject-publish-dlx"])
@pytest.mark.parametrize(
    ("limit", "words", "refused"),
    [
        ({"x__max__length": 2}, "0a 5b 9c 0d", [3, 4]),
        ({"x__max__length__bytes": 5}, "0a 9bbb 5c 9d 0", [2, 4]),
    ],
)
def test_a_full_queue_refuses_whatever_the_priority(
    amqp: Amqp, overflow: str, limit: dict[str, object], words: str, refused: list[int]
) -> None:
    channel, queue = priority_queue(amqp, 9, False, x__overflow=overflow, **limit)
    channel.confirm_select()
    for number, word in enumerate(words.split(), 1):
        put(channel, queue, word)
        confirm = channel.event()
        assert isinstance(confirm, BasicAck | BasicNack)
        assert confirm.delivery_tag == number
        assert isinstance(confirm, BasicNack) == (number in refused)
    kept = [word for number, word in enumerate(words.split(), 1) if number not in refused]
    assert sorted(drained(channel, queue).split()) == sorted(kept)


# -- expiry ----------------------------------------------------------------------------------------


def test_expiry_ends_at_the_highest_message_that_lives(amqp: Amqp) -> None:
    channel, queue = priority_queue(amqp)
    put(channel, queue, "9a 5b", expiration=b"1")
    put(channel, queue, "5c")
    put(channel, queue, "5d 0e", expiration=b"1")
    put(channel, queue, "0f")
    # The messages are in the queue, so their time runs.
    channel.quiet()
    amqp.pause(60)
    amqp.eventually(lambda: channel.count(queue) == 4)
    assert channel.get(queue, no_ack=True).body == b"5c"
    amqp.eventually(lambda: channel.count(queue) == 1)
    assert drained(channel, queue) == "0f"


def test_the_time_of_the_queue_counts_at_every_level(amqp: Amqp) -> None:
    channel, queue = priority_queue(amqp, x__message__ttl=30)
    put(channel, queue, "0a 9b 5c 9d 0e")
    amqp.pause(60)
    amqp.eventually(lambda: channel.count(queue) == 0)
    assert drained(channel, queue) == ""


def test_a_message_that_has_expired_when_it_returns_does_not_come_again(amqp: Amqp) -> None:
    amqp.slow_in_real_time()
    channel, queue = priority_queue(amqp)
    put(channel, queue, "0a")
    put(channel, queue, "5b", expiration=b"2000")
    taken = take(channel, queue, 2)
    amqp.pause(2050)
    channel.nack(taken["5b"])
    channel.nack(taken["0a"])
    assert drained(channel, queue) == "0a"


# -- counts ----------------------------------------------------------------------------------------


def test_counts_are_of_all_levels(amqp: Amqp) -> None:
    channel, queue = priority_queue(amqp)
    put(channel, queue, "0a 9b 5c 0d")
    assert [channel.get(queue).got.message_count for _ in range(2)] == [3, 2]
    assert channel.count(queue) == 2
    assert channel.delete(queue) == 2


def test_purge_empties_all_levels_and_spares_unacked(amqp: Amqp) -> None:
    channel, queue = priority_queue(amqp)
    put(channel, queue, "0a 9b 5c 0d 5e")
    tags = take(channel, queue, 2)
    for expected in (3, 0):
        channel.send(QueuePurge(queue))
        assert channel.expect(QueuePurgeOk).message_count == expected
    put(channel, queue, "5x 9y")
    for tag in tags.values():
        channel.nack(tag)
    assert drained(channel, queue) == "9b 9y 5c 5x"


@pytest.mark.parametrize("word", ["0a", "9a"])
def test_delete_if_empty_looks_at_every_level(amqp: Amqp, word: str) -> None:
    channel, queue = priority_queue(amqp)
    put(channel, queue, word)
    assert channel.count(queue) == 1
    channel.peer.channel().refused(
        QueueDelete(queue, False, True), 406, f"queue '{queue.decode()}' in vhost '/' not empty"
    )
    channel.get(queue)
    channel.send(QueueDelete(queue, False, True))
    assert channel.expect(QueueDeleteOk).message_count == 0


# -- transactions ----------------------------------------------------------------------------------


@pytest.mark.parametrize("durable", [False, True])
def test_a_commit_publishes_to_several_levels(amqp: Amqp, durable: bool) -> None:
    channel, queue = priority_queue(amqp, durable=durable)
    channel.send(TxSelect())
    channel.expect(TxSelectOk)
    put(channel, queue, "0a 9b 5c 9d", durable)
    assert channel.count(queue) == 0
    channel.send(TxCommit())
    channel.expect(TxCommitOk)
    put(channel, queue, "9e", durable)
    channel.send(TxRollback())
    channel.expect(TxRollbackOk)
    assert drained(channel, queue) == "9b 9d 5c 0a"
    channel.delete(queue)


def test_acks_of_several_levels_in_a_transaction(amqp: Amqp) -> None:
    channel, queue = priority_queue(amqp)
    put(channel, queue, "0a 9b 5c 9d")
    channel.send(TxSelect())
    channel.expect(TxSelectOk)
    tags = take(channel, queue, 4)
    channel.ack(0, multiple=True)
    channel.send(TxRollback())
    channel.expect(TxRollbackOk)
    channel.ack(tags["9b"])
    channel.nack(tags["0a"])
    channel.nack(tags["9d"])
    assert channel.is_empty(queue)
    channel.send(TxCommit())
    channel.expect(TxCommitOk)
    assert drained(channel, queue) == "9d 0a"
    channel.send(TxCommit())
    channel.expect(TxCommitOk)


# -- by chance -------------------------------------------------------------------------------------


@KINDS
@pytest.mark.parametrize("limit", [None, 4])
def test_any_use_agrees_with_a_sorted_list(
    amqp: Amqp, durable: bool, mode: str, limit: int | None
) -> None:
    """Publishes, gets, acks, returns and purges; with a limit, the head is dropped."""
    rng = random.Random(f"{durable} {mode} {limit}")
    arguments = {} if limit is None else {"x__max__length": limit}
    channel, queue = priority_queue(amqp, 3, durable, x__queue__mode=mode, **arguments)
    channel.confirm_select()
    # Messages as (level from the top, number), which is their order.
    ready: list[tuple[int, int]] = []
    unacked: dict[int, tuple[int, int]] = {}
    published = 0
    for _ in range(200):
        match rng.choice(["publish"] * 9 + ["get"] * 7 + ["nack"] * 4 + ["ack", "purge"]):
            case "publish":
                published += 1
                priority = rng.randrange(6)
                channel.publish(
                    queue,
                    b"%d" % published,
                    Properties(delivery_mode=2 if durable else 1, priority=priority).encode(),
                )
                assert isinstance(channel.event(), BasicAck)
                ready.append((-min(priority, 3), published))
            case "get":
                found = channel.call(BasicGet(queue))
                assert isinstance(found, Message) == bool(ready)
                if isinstance(found, Message):
                    head = ready.pop(0)
                    unacked[found.got.delivery_tag] = head
                    assert (int(found.body), found.got.message_count) == (head[1], len(ready))
            case "purge" if rng.random() < 0.3:
                channel.send(QueuePurge(queue))
                assert channel.expect(QueuePurgeOk).message_count == len(ready)
                ready.clear()
            case "ack" if unacked:
                tag = rng.choice(list(unacked))
                channel.ack(tag)
                del unacked[tag]
            case "nack" if unacked:
                upto = rng.choice(list(unacked))
                several = rng.random() < 0.3
                channel.nack(upto, multiple=several)
                for tag in [tag for tag in unacked if tag == upto or (several and tag < upto)]:
                    ready.append(unacked.pop(tag))
        ready.sort()
        if limit is not None:
            del ready[: max(0, len(ready) - limit)]
    assert [int(body) for body in channel.drain(queue)] == [number for _, number in ready]
    channel.delete(queue)
