"""The metrics of mirrored queues: how many copies there are, and how far they are behind."""

from collections.abc import Callable, Iterable
from typing import Final

from warrenmq.admin.protocol.mirrors import MirrorCopy, MirrorStatus
from warrenmq.admin.protocol.totals import MirrorSums
from warrenmq.management.prometheus.metrics import WARREN, Family, Metric, family, of_each


def _copy(name: str, text: str, value: Callable[[MirrorCopy], float | None]) -> Metric[MirrorCopy]:
    return Metric(f"mirror_{name}", "gauge", text, value, WARREN)


_COPIES: Final = (
    _copy("online", "is 1 while the mirror's node is reached", lambda m: float(m.is_online)),
    _copy(
        "synchronised",
        "is 1 while the mirror has all messages of its queue",
        lambda m: float(m.is_synchronised),
    ),
    _copy("lag_messages", "Messages that the mirror has not yet", lambda m: m.lag_messages),
    _copy("lag_bytes", "Bytes that the mirror has not made durable yet", lambda m: m.lag_bytes),
    _copy(
        "sync_messages", "Messages that the synchronisation has copied", lambda m: m.sync_messages
    ),
    _copy("sync_total", "Messages that the synchronisation copies", lambda m: m.sync_total),
)


def mirror_sums(infix: str, sums: MirrorSums) -> Iterable[Family]:
    """How many queues of this node have mirrors, and how many mirrors of them there are."""
    for name, text, value in (
        ("mirrored_queues", "Queues with a master here and with mirrors", sums.queues),
        ("mirrors", "Mirrors of these queues", sums.mirrors),
        ("unsynchronised_mirrors", "Mirrors that lack messages", sums.mirrors - sums.synchronised),
        (
            "unprotected_queues",
            "Mirrored queues without a synchronised mirror: they stop with this node",
            sums.unprotected,
        ),
    ):
        yield family(f"{WARREN}_{infix}{name}", "gauge", text, (), [((), float(value))])


def mirror_copies(infix: str, queues: list[MirrorStatus]) -> Iterable[Family]:
    """Each mirror of `queues`, whose masters are on this node."""
    copies = [((each.vhost, each.name, one.node), one) for each in queues for one in each.mirrors]
    return of_each(_COPIES, infix, ("vhost", "queue", "mirror"), copies)
