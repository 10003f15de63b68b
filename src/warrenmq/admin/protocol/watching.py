"""Requests and replies of the admin protocol for what happens in a node: logins and events.

`control.py` has the other operations, and says which tag each of them needs.
"""

from typing import Annotated, Final

from msgspec import Meta, Struct

from warrenmq.admin.protocol.fields import ShortStr

# Events that a node tells of, by RabbitMQ's names; EVENTS_LOST and those of checkpoints and mirrors
# are warren's own.
EVENTS_LOST: Final = "events.lost"
EVENT_NAMES: Final = (
    "alarm.cleared", "alarm.set", "binding.created", "binding.deleted", "channel.closed",
    "channel.created", "checkpoint.completed", "connection.closed", "connection.created",
    "consumer.created", "consumer.deleted", "exchange.created", "exchange.deleted",
    "mirror.added", "mirror.promoted", "mirror.removed", "mirror.synchronised",
    "mirror.unsynchronised", "operator.policy.cleared",
    "parameter.cleared", "parameter.set", "permission.created", "permission.deleted",
    "policy.cleared", "policy.set", "queue.created", "queue.deleted", "topic.permission.created",
    "topic.permission.deleted", "user.authentication.failure", "user.authentication.success",
    "user.created", "user.deleted", "user.limits.cleared", "user.limits.set",
    "user.password.changed", "user.password.cleared", "user.tags.set", "vhost.created",
    "vhost.deleted", "vhost.limits.cleared", "vhost.limits.set", "vhost.tags.set",
)  # fmt: skip

# Longest wait for an event (ms).
EVENTS_WAIT_MAX_MS: Final = 30_000


class _Request(Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """Base of the requests: unknown fields are errors."""


class SetSourceTracking(_Request, tag="set_source_tracking", frozen=True):
    """Begin or end to count logins by address and user's name."""

    is_on: bool


class ResetLoginAttempts(_Request, tag="reset_login_attempts", frozen=True):
    """Count logins anew."""


class WatchEvents(_Request, tag="watch_events", frozen=True):
    """Keep the events with these names for the session, from now on. Reply: Done."""

    names: Annotated[list[str], Meta(max_length=100)]


class NextEvents(_Request, tag="next_events", frozen=True):
    """The next events that the session watches; waits for one. Reply: Events, maybe without any."""

    wait_ms: Annotated[int, Meta(ge=0, le=EVENTS_WAIT_MAX_MS)]


class KeepEvents(_Request, tag="keep_events", frozen=True):
    """Let the durable queue `queue` take the events that a node tells of from now on. Reply: Done.

    The queue is bound to `amq.rabbitmq.event` with each of the topic patterns in `events`, and to
    the exchange of the firehose with each of those in `messages`. What is missing is declared, the
    exchange too. Refused (`precondition`) when the queue takes other events already.
    """

    vhost: Annotated[str, Meta(max_length=255)]
    queue: Annotated[bytes, Meta(min_length=1, max_length=255)]
    events: Annotated[list[ShortStr], Meta(max_length=100)]
    messages: Annotated[list[ShortStr], Meta(max_length=100)]


class DescribeCertificates(_Request, tag="describe_certificates", frozen=True):
    """The certificates of the TLS listeners. Reply: Certificates."""


class DescribeVariables(_Request, tag="describe_variables", frozen=True):
    """The environment variables that the node's settings come from. Reply: Variables."""


class Events(Struct, tag="events", frozen=True):
    """Events as JSON objects, the oldest first.

    EVENTS_LOST stands where events are missing, because the client took them too slowly.
    """

    lines: list[str]


class ListenerCertificates(Struct, frozen=True):
    """A TLS listener, with its certificate and the trusted ones as PEM ("": there are none)."""

    protocol: str
    interface: str
    port: int
    certificate: str
    trusted: str


class Certificates(Struct, tag="certificates", frozen=True):
    """The certificates of all TLS listeners."""

    listeners: list[ListenerCertificates]


class Variables(Struct, tag="variables", frozen=True):
    """Values of environment variables by name; those of secrets are hidden."""

    values: dict[str, str]


WatchRequest = (
    SetSourceTracking
    | ResetLoginAttempts
    | WatchEvents
    | NextEvents
    | DescribeCertificates
    | DescribeVariables
)
WatchReply = Events | Certificates | Variables
