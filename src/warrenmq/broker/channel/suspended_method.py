"""Resumes a method for which a channel was suspended, once what it waits for has come."""

from __future__ import annotations

from collections.abc import Callable

from mypy_extensions import i64

from warrenmq.broker.channel.channel import Channel
from warrenmq.wire.errors import ChannelException, ConnectionException


def resume_method(channel: Channel, handle: Callable[[], None], now_ms: i64) -> None:
    """Let `handle` finish the method, refuse it or suspend the channel anew; then resume.

    `handle` may raise ChannelException and ConnectionException. It is not called if the channel was
    closed meanwhile.
    """
    connection = channel.connection
    if channel.is_closed:
        channel.resume(now_ms)
        connection.touch()
        return
    connection.now_ms = now_ms
    channel.is_suspended = False
    # Each `except` needs its own name: in compiled code a variable has one type.
    try:
        handle()
    except ChannelException as refusal:
        connection.refuse(channel.number, refusal)
    except ConnectionException as fault:
        connection.refuse(channel.number, fault)
    if not channel.is_suspended:
        channel.resume(now_ms)
    connection.touch()
