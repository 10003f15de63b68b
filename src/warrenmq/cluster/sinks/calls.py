"""The records about staged messages that nodes send each other over `NodeCalls`, as bytes.

Each request begins with MARK, which tells it from those of admin sessions. A message of more than
PIECE_BYTES comes in pieces ahead of its place in a slice.
"""

from __future__ import annotations

from typing import Final

import msgspec

MARK: Final = b"staged:"
# Bytes of bodies in a request, far enough below the limit of a call for everything else.
PIECE_BYTES: Final = 48 * 1024


class CarriedMessage(msgspec.Struct, frozen=True, array_like=True):
    """A message at `position` of its sink, and its queues at the node that gets it.

    `pieces_bytes`: the size of a body that has come in pieces, 0 for one that is here.
    """

    position: int
    queues: list[bytes]
    address: bytes
    properties: bytes
    body: bytes
    is_persistent: bool
    is_known: bool
    pieces_bytes: int = 0


class CarrySlice(msgspec.Struct, frozen=True, array_like=True, tag="slice"):
    """Messages of the cluster's sink with the key `sink`.

    All positions below `floor` are in all of their queues.
    """

    vhost: bytes
    sink: bytes
    floor: int
    messages: list[CarriedMessage]


class CarryPiece(msgspec.Struct, frozen=True, array_like=True, tag="piece"):
    """The part of a body that begins at `start`; the pieces of a body come in order."""

    vhost: bytes
    sink: bytes
    position: int
    start: int
    data: bytes


class Carried(msgspec.Struct, frozen=True, array_like=True):
    """The answer: why the node has not got everything, "" if it has; and the floor it knows.

    `may_be_known`: a consumer may have had what the node has not got.
    """

    failure: str = ""
    floor: int = 0
    may_be_known: bool = False


CarryRequest = CarrySlice | CarryPiece
_decoder: msgspec.msgpack.Decoder[CarryRequest] = msgspec.msgpack.Decoder(CarryRequest)
_answers: msgspec.msgpack.Decoder[Carried] = msgspec.msgpack.Decoder(Carried)


def encode_request(request: CarryRequest) -> bytes:
    """The bytes of a call."""
    return MARK + msgspec.msgpack.encode(request)


def decode_request(call: bytes) -> CarryRequest:
    """The request in a call that begins with MARK. Raises msgspec.DecodeError."""
    return _decoder.decode(memoryview(call)[len(MARK) :])


def decode_answer(answer: bytes) -> Carried:
    """The answer to a call. Raises msgspec.DecodeError."""
    return _answers.decode(answer)
