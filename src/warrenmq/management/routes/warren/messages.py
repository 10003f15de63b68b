"""Messages of a queue: look at them where they are, move them, replay dead letters."""

from typing import Any, Final

from fastapi import APIRouter

from warrenmq.admin.protocol.requests import DescribeQueue, Fetched, Peek, QueueDescription
from warrenmq.management.access import VhostUser
from warrenmq.management.bodies import Body, JsonBody
from warrenmq.management.cluster_sessions import session_at_home
from warrenmq.management.dead_letters import EXCHANGE, PLACES, address_of_origin
from warrenmq.management.errors import bad_request
from warrenmq.management.message_blocks import PeekedMessage, messages_of
from warrenmq.management.messages import Shown, carry_messages
from warrenmq.management.rows import JsonReply, Row

router = APIRouter(prefix="/api/warren/queues")

# One reply has so many messages at most, and bodies of so many bytes unless one is larger.
_PEEK_MESSAGES_MAX: Final = 1000
_PEEK_BYTES: Final = 8 * 1024 * 1024
_POSITION_MAX: Final = 1 << 62


@router.post("/{vhost:segment}/{queue:segment}/peek")
def peek(caller: VhostUser, vhost: str, queue: str, body: JsonBody) -> JsonReply:
    """Look at up to `count` ready messages from the position `start` on, and leave them there.

    `next` is where the following request starts; `encoding` and `truncate` are those of `get`.
    """
    shown = Shown.of(body)
    count = _within(body, "count", 1, _PEEK_MESSAGES_MAX)
    with session_at_home(caller, vhost, queue) as call:
        name = queue.encode()
        there = call(DescribeQueue(name), QueueDescription)
        start = max(there.first_ready, body.number("start"))
        fetched = call(
            Peek(name, there.incarnation, min(start, there.tail), there.tail, count, _PEEK_BYTES),
            Fetched,
        )
        messages = [_row(each, shown) for each in messages_of(bytes(fetched.block))]
    return JsonReply(
        {
            "messages_ready": there.ready,
            "first": there.first_ready,
            "next": fetched.next,
            "end": there.tail,
            "messages": messages,
        }
    )


@router.post("/{vhost:segment}/{queue:segment}/move")
def move(caller: VhostUser, vhost: str, queue: str, body: JsonBody) -> JsonReply:
    """Move up to `count` messages to the queue `destination`, or to `exchange`.

    `routing_key` replaces that of the messages. A message leaves its queue when the broker has
    confirmed it elsewhere, so none is lost; one may be doubled if the broker stops in between.
    """
    count = _within(body, "count", 1, _PEEK_MESSAGES_MAX)
    if body.has("destination") == body.has("exchange"):
        raise bad_request("either destination or exchange must be there")
    exchange, key = body.text("exchange"), body.values.get("routing_key")
    if body.has("destination"):
        key = body.text("destination")
        if key == queue:
            raise bad_request("the destination is the queue itself")
    elif key is not None:
        key = body.text("routing_key")

    def address(_channel: object, method: Any, _properties: object) -> tuple[str, str]:
        return exchange, method.routing_key if key is None else key

    done = carry_messages(caller, vhost, queue, count, address)
    return JsonReply({"moved": done.moved, "messages_left": done.left, "refused": done.kept > 0})


@router.post("/{vhost:segment}/{queue:segment}/replay")
def replay(caller: VhostUser, vhost: str, queue: str, body: JsonBody) -> JsonReply:
    """Send up to `count` dead letters back to where they died first, by their header `x-death`.

    `to`: "exchange", with the routing keys of then, or "queue", to that queue alone. Messages that
    never died, or whose exchange or queue is gone, stay and are `kept`.
    """
    count = _within(body, "count", 1, _PEEK_MESSAGES_MAX)
    place = body.text("to", EXCHANGE)
    if place not in PLACES:
        raise bad_request(f"to must be {' or '.join(PLACES)}, not {place}")
    done = carry_messages(caller, vhost, queue, count, address_of_origin(place), skips=True)
    return JsonReply({"replayed": done.moved, "kept": done.kept, "messages_left": done.left})


def _within(body: Body, name: str, lowest: int, highest: int) -> int:
    """A number that must be there, between the two. Raises HttpRefusal."""
    body.require(name)
    value = body.number(name)
    if not lowest <= value <= highest:
        raise bad_request(f"{name} must be between {lowest} and {highest}, not {value}")
    return value


def _row(message: PeekedMessage, shown: Shown) -> Row:
    return {
        "position": message.seq,
        "enqueued_at": message.enqueued_ms,
        "redelivered": message.is_redelivered,
        "exchange": message.exchange,
        "routing_key": message.routing_key,
        "properties": shown.properties(message.properties),
        **shown.payload(message.body),
    }
