"""Has a running node import definitions and waits until the import is over."""

import time
from collections.abc import Callable
from typing import Final, Protocol, TypeVar

from warrenmq.admin.protocol.control import (
    IMPORT_CANCELLED,
    CancelImport,
    GetImport,
    ImportDefinitions,
    Imported,
    ImportStatus,
)
from warrenmq.admin.protocol.requests import Reply, Request

_POLL_S: Final = 0.02
_ReplyType = TypeVar("_ReplyType", bound=Reply)


class Ask(Protocol):
    """Sends a request to a node and returns its reply, as `AdminClient.request` does."""

    def __call__(self, request: Request, expected: type[_ReplyType], /) -> _ReplyType: ...


def import_definitions(
    ask: Ask,
    request: ImportDefinitions,
    on_status: Callable[[ImportStatus], None] = lambda status: None,
) -> Imported:
    """Carry out `request` and return what changed. Calls `on_status` with the progress.

    An interrupt (Ctrl-C) cancels the import and is raised; when the node stores the import already,
    it is ignored, because the import goes on. Raises whatever `ask` raises.
    """
    status = ask(request, ImportStatus)
    while status.imported is None:
        on_status(status)
        try:
            time.sleep(_POLL_S)
        except KeyboardInterrupt:
            if ask(CancelImport(), ImportStatus).step == IMPORT_CANCELLED:
                raise
        status = ask(GetImport(), ImportStatus)
    return status.imported
