"""The check of the limits in connection.tune-ok (protocol section 2).

A client may not go above the broker's limits, and not below the minimum frame size.
"""

from typing import Final

from mypy_extensions import i64

from warrenmq.broker.definitions.settings import Settings
from warrenmq.wire.errors import NOT_ALLOWED, ConnectionException
from warrenmq.wire.frames import FRAME_MIN_SIZE
from warrenmq.wire.methods import ConnectionTuneOk

# Without a negotiated limit, frames of at least this size (bytes) are accepted, even if the limit
# on messages is smaller.
_UNLIMITED_FRAME_MIN: Final = 131072


def accepted_frame_max(tuned: ConnectionTuneOk, max_message_size: i64) -> i64:
    """The largest frame (bytes) that the broker takes from the client.

    Without a limit on frames, the limit on messages bounds the memory of a partial frame.
    """
    if tuned.frame_max != 0:
        return tuned.frame_max
    return max(max_message_size, i64(_UNLIMITED_FRAME_MIN))


def check_tuned(method: ConnectionTuneOk, settings: Settings) -> None:
    """Raise ConnectionException 530 if `method` exceeds the limits that the broker offered."""
    _check_limit("channel_max", method.channel_max, settings.channel_max)
    _check_limit("frame_max", method.frame_max, settings.frame_max)
    if 0 < method.frame_max < FRAME_MIN_SIZE:
        raise _refused(
            f"frame_max = {method.frame_max} is lower than the minimum allowed value ({FRAME_MIN_SIZE})"
        )


def _check_limit(name: str, value: i64, limit: i64) -> None:
    if limit != 0 and (value == 0 or value > limit):
        shown = f"{value} (no limit)" if name == "channel_max" and value == 0 else f"{value}"
        raise _refused(f"{name} = {shown} is higher than the maximum allowed value ({limit})")


def _refused(reason: str) -> ConnectionException:
    return ConnectionException(
        NOT_ALLOWED, f"failed to negotiate connection parameters: negotiated {reason}", 10, 30
    )
