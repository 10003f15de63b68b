"""The rare methods that a running connection must understand: closes, cancels, blocks and flow.

`notice` turns such a method into a code, so that publisher and consumer branch on an integer. A
close raises PerfError, because no run continues after it.
"""

from typing import Final

from librt.strings import BytesWriter
from mypy_extensions import i64

from warrenmq.perf.errors import PerfError
from warrenmq.wire import methods
from warrenmq.wire.encode import write_method_frame
from warrenmq.wire.errors import ConnectionException

OTHER: Final = 0
BLOCKED: Final = 1
UNBLOCKED: Final = 2
FLOW_ON: Final = 3
FLOW_OFF: Final = 4
CANCELLED: Final = 5
CLOSED: Final = 6


def notice(data: bytes, start: i64, end: i64) -> i64:
    """The code of the method `data[start:end]`, one of the constants above.

    Raises PerfError when the method closes the channel or connection, or does not decode.
    """
    try:
        method = methods.decode_method(data, start, end)
    except ConnectionException as error:
        raise PerfError(f"the broker sent a method that does not decode: {error.text}") from None
    if isinstance(method, (methods.ConnectionClose, methods.ChannelClose)):
        what = "connection" if isinstance(method, methods.ConnectionClose) else "channel"
        text = method.reply_text.decode("utf-8", "replace")
        raise PerfError(f"the broker closed the {what}: {method.reply_code} {text}")
    if isinstance(method, methods.ConnectionBlocked):
        return BLOCKED
    if isinstance(method, methods.ConnectionUnblocked):
        return UNBLOCKED
    if isinstance(method, methods.ChannelFlow):
        return FLOW_ON if method.active else FLOW_OFF
    if isinstance(method, methods.BasicCancel):
        return CANCELLED
    if isinstance(method, methods.ConnectionCloseOk):
        return CLOSED
    return OTHER


def flow_ok_frame(active: bool) -> bytes:
    """The reply to channel.flow."""
    out = BytesWriter()
    write_method_frame(out, 1, methods.ChannelFlowOk(active=active))
    return out.getvalue()
