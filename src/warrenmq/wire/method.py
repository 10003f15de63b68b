"""The base class of the generated methods, and the replies to methods that do not decode.

`warrenmq.wire.methods` is generated from `spec/amqp0-9-1.toml`; the hand-written parts are in this
module and in `primitives`.
"""

from librt.strings import BytesWriter
from mypy_extensions import i64, mypyc_attr

from warrenmq.wire.errors import (
    COMMAND_INVALID,
    FRAME_ERROR,
    ConnectionException,
    MalformedBytes,
    octets_text,
)
from warrenmq.wire.field_types import check_table
from warrenmq.wire.primitives import MALFORMED_UTF8, longstr_end


@mypyc_attr(native_class=True, acyclic=True)
class Method:
    """A method of AMQP with its arguments; each subclass defines `write_arguments`.

    `id` is class id << 16 | method id, the first four bytes on the wire. Arguments are bytes,
    numbers and bools only, so the garbage collector need not track methods (`acyclic`).
    """

    def __init__(self, id: i64) -> None:
        self.id: i64 = id

    @property
    def class_id(self) -> int:
        return self.id >> 16

    @property
    def method_id(self) -> int:
        return self.id & 0xFFFF

    def write_arguments(self, out: BytesWriter) -> None:
        """Append the arguments: the whole payload of the method behind its id."""
        raise NotImplementedError


def read_table(data: bytes, at: i64, end: i64) -> tuple[bytes, i64]:
    """The body of the field table at `at`, and the position behind it.

    The structure of the table is checked, its values are not decoded.
    """
    stop = longstr_end(data, at, end)
    check_table(data, at + 4, stop)
    return data[at + 4 : stop], stop


def short_method_frame(data: bytes, start: i64, end: i64) -> ConnectionException:
    """The reply to a method frame that is too short to name a method."""
    return ConnectionException(
        FRAME_ERROR, f"type 1, all octets = {octets_text(data[start:end])}: unknown_frame"
    )


def unknown_method(id: i64) -> ConnectionException:
    """The reply to a class and method id that AMQP 0-9-1 does not have."""
    class_id: int = id >> 16
    method_id: int = id & 0xFFFF
    return ConnectionException(
        COMMAND_INVALID, f"unknown method {method_id} of class {class_id}", class_id, method_id
    )


def bad_arguments(
    id: i64, data: bytes, start: i64, end: i64, error: MalformedBytes
) -> ConnectionException:
    """The reply to arguments `data[start:end]` that do not decode."""
    if error.reason == MALFORMED_UTF8:
        # RabbitMQ blames no method for malformed UTF-8.
        return ConnectionException(FRAME_ERROR, MALFORMED_UTF8)
    explanation = error.reason if error.reason else f"cannot decode {octets_text(data[start:end])}"
    return ConnectionException(FRAME_ERROR, explanation, id >> 16, id & 0xFFFF)
