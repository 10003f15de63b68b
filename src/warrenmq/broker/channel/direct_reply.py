"""Direct reply-to: the name of a channel that consumes `amq.rabbitmq.reply-to` (protocol 9.6).

The name tells the channel's node, so that a reply finds it from any node of a cluster.
"""

import base64
import binascii
from typing import Final

REPLY_TO: Final = b"amq.rabbitmq.reply-to"


class DirectReply:
    """A channel's consumer of direct replies: its `tag`, and the `name` replies are sent to."""

    def __init__(self, tag: bytes, name: bytes) -> None:
        self.tag: bytes = tag
        # The tag as a short string, as every basic.deliver carries it.
        self.tag_field: bytes = bytes([len(tag)]) + tag
        self.name: bytes = name


def reply_name(node: bytes, random: bytes) -> bytes:
    """The name for replies to a channel of `node`; `random` tells its channels apart."""
    return REPLY_TO + b"." + base64.urlsafe_b64encode(node).rstrip(b"=") + b"." + random


def reply_node(name: bytes) -> bytes:
    """The node that a name for replies tells; b"" if it tells none."""
    encoded = name[len(REPLY_TO) + 1 :].partition(b".")[0]
    try:
        return base64.urlsafe_b64decode(encoded + b"=" * (-len(encoded) % 4))
    except binascii.Error:
        return b""
