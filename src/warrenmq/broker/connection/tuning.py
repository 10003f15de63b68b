"""The check of the limits in connection.tune-ok (protocol section 2).

A client may not go above the broker's limits, and not below the minimum frame size.
"""

from mypy_extensions import i64

from warrenmq.broker.definitions.settings import Settings
from warrenmq.wire.errors import NOT_ALLOWED, ConnectionException
from warrenmq.wire.frames import FRAME_MIN_SIZE
from warrenmq.wire.methods import ConnectionTuneOk


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
