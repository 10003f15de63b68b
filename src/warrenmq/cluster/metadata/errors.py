"""Failures of etcd, each a text of one line."""

from warrenmq.broker.definitions.metadata import MetadataError


class EtcdUnavailable(MetadataError):
    """No member of etcd gave an answer that decides the request; a later attempt may succeed.

    `is_outcome_unknown`: a member may have carried the request out, or may still do so. Otherwise
    nothing was done.
    """

    def __init__(self, text: str, is_outcome_unknown: bool) -> None:
        super().__init__(text)
        self.is_outcome_unknown = is_outcome_unknown


class EtcdRefused(MetadataError):
    """Etcd refused the request for good: wrong user, no permission, no space. Nothing was done."""


class LeaseGone(EtcdRefused):
    """The lease that a key was to get has expired or was revoked."""


class RevisionsLost(EtcdRefused):
    """Etcd is at an earlier revision than it was: somebody wiped it or restored a backup."""


class Compacted(MetadataError):
    """Etcd no longer has the history from the wanted revision on; the caller loads anew."""
