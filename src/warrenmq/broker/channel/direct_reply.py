"""Direct reply-to: the name of a channel that consumes `amq.rabbitmq.reply-to` (protocol 9.6)."""

from typing import Final

REPLY_TO: Final = b"amq.rabbitmq.reply-to"


class DirectReply:
    """A channel's consumer of direct replies: its `tag`, and the `name` replies are sent to."""

    def __init__(self, tag: bytes, name: bytes) -> None:
        self.tag: bytes = tag
        # The tag as a short string, as every basic.deliver carries it.
        self.tag_field: bytes = bytes([len(tag)]) + tag
        self.name: bytes = name
