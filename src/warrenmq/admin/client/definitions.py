"""Has a running node import definitions and waits until the import is over."""

import time
from collections.abc import Callable
from typing import Final, Protocol, TypeVar

from warrenmq.admin.protocol import control
from warrenmq.admin.protocol.requests import Reply, Request

_POLL_S: Final = 0.02
_ReplyType = TypeVar("_ReplyType", bound=Reply)


class Ask(Protocol):
    """Sends a request to a node and returns its reply, as `AdminClient.request` does."""

    def __call__(self, request: Request, expected: type[_ReplyType], /) -> _ReplyType: ...


def import_definitions(
    ask: Ask,
    request: control.ImportDefinitions,
    on_status: Callable[[control.ImportStatus], None] = lambda status: None,
) -> control.Imported:
    """Carry out `request` and return what changed. Calls `on_status` with the progress.

    An interrupt (Ctrl-C) cancels the import and is raised; when the node stores the import already,
    it is ignored, because the import goes on. Raises whatever `ask` raises.
    """
    status = ask(request, control.ImportStatus)
    while status.imported is None:
        on_status(status)
        try:
            time.sleep(_POLL_S)
        except KeyboardInterrupt:
            if ask(control.CancelImport(), control.ImportStatus).step == control.IMPORT_CANCELLED:
                raise
        status = ask(control.GetImport(), control.ImportStatus)
    return status.imported
