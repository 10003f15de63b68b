"""Metrics as text: Prometheus' format 0.0.4, or OpenMetrics for clients that ask for it."""

from collections.abc import Iterable, Iterator
from typing import Final

from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from warrenmq.management.prometheus.metrics import Family, ObjectFamily

# Text of about this size goes out at once.
PIECE_BYTES: Final = 65536
# The end of a page of OpenMetrics, with which its encoder ends each text.
_END: Final = b"# EOF\n"


class _One(Collector):
    def __init__(self, family: Family) -> None:
        self._family = family

    def collect(self) -> Iterable[Family]:
        return (self._family,)


def _lines(family: ObjectFamily) -> bytes:
    # The library needs a second for a page of ten thousand queues, since it looks at the labels of
    # each queue again for each metric.
    name = family.name
    found = zip(family.labels, family.values, strict=True)
    lines = [f"{name}{{{labels}}} {float(value)}\n" for labels, value in found if value is not None]
    return "".join(lines).encode()


def content_type(accept: str) -> str:
    """The content type of a page for a request that accepts `accept`."""
    return choose_encoder(accept)[1]


def encode(families: Iterable[Family | ObjectFamily], accept: str) -> Iterator[bytes]:
    """The text of a page in pieces, for a request that accepts `accept`.

    One family at a time is encoded: that of ten thousand queues takes some milliseconds.
    """
    encoder, _ = choose_encoder(accept)
    piece = bytearray()
    end = b""
    for family in families:
        head = family.head if isinstance(family, ObjectFamily) else family
        text = encoder(_One(head))
        if text.endswith(_END):
            end = _END
        piece += text.removesuffix(_END)
        if isinstance(family, ObjectFamily):
            piece += _lines(family)
        if len(piece) >= PIECE_BYTES:
            yield bytes(piece)
            piece.clear()
    yield bytes(piece + end)
