"""Direct reply-to: what a channel that consumes `amq.rabbitmq.reply-to` is known by (protocol 9.6)."""

from typing import Final

REPLY_TO: Final = b"amq.rabbitmq.reply-to"


class DirectReply:
    """The pseudo consumer `tag` of a channel, and the `name` that replies are sent to."""

    def __init__(self, tag: bytes, name: bytes) -> None:
        self.tag: bytes = tag
        # As it stands in every basic.deliver.
        self.tag_field: bytes = bytes([len(tag)]) + tag
        self.name: bytes = name
