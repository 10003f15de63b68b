"""Who is signed in. The browser has a random id, the process a ticket, and nobody a password."""

import asyncio
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from warrenmq.management.ui.api import Api, ApiError, Site

# The cookie with the id of a sign-in.
COOKIE: Final = "warren_session"
_ID_BYTES: Final = 32
# Tickets are exchanged for new ones so often (s); they hold for three times as long.
_RENEW_S: Final = 300.0
# Users who are signed in at the same time; one more ends the one that was used last.
_SIGN_INS_MAX: Final = 1000


@dataclass
class SignIn:
    """A user in one browser. `used_s` is the monotonic time of its last request."""

    user: str
    tags: list[str]
    ticket: str
    peer: str
    used_s: float
    # What the next page says was done.
    said: str = ""
    # A file of definitions whose import waits for a yes.
    upload: bytes = b""
    # What tables have shown, so that a refresh keeps the order of their rows; by page and query.
    shown: dict[str, list[Any]] = field(default_factory=dict)


class SignIns:
    """All sign-ins, by the id in the browser's cookie; `idle_s` without a request ends one."""

    def __init__(
        self, site: Site, idle_s: float, clock_s: Callable[[], float] = time.monotonic
    ) -> None:
        self.site = site
        self._idle_s = idle_s
        self._clock_s = clock_s
        self._by_id: dict[str, SignIn] = {}
        self._renewing: asyncio.Task[None] | None = None

    async def sign_in(self, user: str, password: str, peer: str) -> str:
        """The id of a new sign-in. Raises ApiError if the API refuses the user."""
        issued = await Api(self.site, user, password, peer).post("warren/tickets")
        self._drop_idle()
        if len(self._by_id) >= _SIGN_INS_MAX:
            del self._by_id[min(self._by_id, key=lambda each: self._by_id[each].used_s)]
        name = secrets.token_urlsafe(_ID_BYTES)
        self._by_id[name] = SignIn(
            issued["user"], issued["tags"], issued["ticket"], peer, self._clock_s()
        )
        if self._renewing is None or self._renewing.done():
            self._renewing = asyncio.get_running_loop().create_task(self._renew())
        return name

    def find(self, name: str, is_used: bool) -> SignIn | None:
        """The sign-in with this id. A page that refreshes itself does not use it."""
        self._drop_idle()
        found = self._by_id.get(name)
        if found is not None and is_used:
            found.used_s = self._clock_s()
        return found

    def sign_out(self, name: str) -> None:
        """End a sign-in."""
        self._by_id.pop(name, None)

    def _drop_idle(self) -> None:
        oldest = self._clock_s() - self._idle_s
        for name in [name for name, each in self._by_id.items() if each.used_s < oldest]:
            del self._by_id[name]

    async def _renew(self) -> None:
        """Renew the tickets of all, as long as there are any."""
        while self._by_id:
            await asyncio.sleep(_RENEW_S)
            self._drop_idle()
            for name, each in list(self._by_id.items()):
                try:
                    issued = await Api(self.site, each.user, each.ticket, each.peer).post(
                        "warren/tickets"
                    )
                except ApiError as error:
                    # A node that is away has the ticket renewed later.
                    if error.status < 500:
                        self.sign_out(name)
                else:
                    each.ticket, each.tags = issued["ticket"], issued["tags"]
