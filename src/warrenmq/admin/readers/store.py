"""The refusal when the broker could not store what a reader group asks for."""

from warrenmq.admin.protocol.requests import ErrorReply
from warrenmq.vocabulary.error_codes import STORAGE_FAILED


def storage_failed(what: str) -> ErrorReply:
    """The refusal when the broker could not store that a range is `what` ("reserved", "acked")."""
    return ErrorReply(
        STORAGE_FAILED, f"the broker could not store that the group's range is {what}; try again"
    )
