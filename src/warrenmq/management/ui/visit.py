"""A visit of a page: who asks for it, and what its URL says."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import parse_qsl, urlencode

from fastapi import Request

from warrenmq.management.ui.api import Api
from warrenmq.management.ui.sign_ins import SignIn

# Ranges of charts by name: length and interval of samples (s).
RANGES: Final = {
    "1m": (60, 5),
    "10m": (600, 5),
    "1h": (3600, 60),
    "8h": (28800, 600),
    "7d": (604800, 1800),
}
_RANGE: Final = "10m"
# Tags that include another one (RabbitMQ's).
_INCLUDED_IN: Final = {
    "management": {"management", "policymaker", "monitoring", "administrator"},
    "policymaker": {"policymaker", "administrator"},
    "monitoring": {"monitoring", "administrator"},
    "administrator": {"administrator"},
}


@dataclass
class Visit:
    """One request for a page; with `is_refresh` for its live parts only."""

    request: Request
    sign_in: SignIn
    api: Api
    prefix: str
    is_refresh: bool
    # The URL of the page whose form was sent; empty: a page was asked for.
    back: str = ""

    @property
    def query(self) -> Mapping[str, str]:
        """The query of the URL; of a repeated name the last value."""
        return self.request.query_params

    @property
    def path(self) -> str:
        """The escaped path of the page, without the prefix."""
        path: str = self.request.scope["path"]
        return path

    @property
    def vhost(self) -> str:
        """The vhost that the user has picked; empty: all."""
        return self.query.get("vhost", "")

    @property
    def range(self) -> str:
        """The name of the range of all charts."""
        name = self.query.get("range", _RANGE)
        return name if name in RANGES else _RANGE

    def has_tag(self, tag: str) -> bool:
        """Whether the user has `tag`, or one that includes it."""
        return not _INCLUDED_IN[tag].isdisjoint(self.sign_in.tags)

    def samples(self, *groups: str) -> dict[str, int]:
        """The query that asks the API for samples of the range; `groups` such as `lengths`."""
        length, interval = RANGES[self.range]
        return {
            name: value
            for group in groups
            for name, value in ((f"{group}_age", length), (f"{group}_incr", interval))
        }

    def url(self, **changes: Any) -> str:
        """The URL of this page with other values in its query; None leaves one out.

        The reply to a form is no page of its own: then it is that of the form's page.
        """
        if not self.back:
            return self.link(self.path, **{**self.query, **changes})
        path, _, query = self.back.removeprefix(self.prefix).partition("?")
        return self.link(path, **{**dict(parse_qsl(query)), **changes})

    def link(self, path: str, **query: Any) -> str:
        """The URL of another page, with vhost, range and pause of this one."""
        kept = {
            name: self.query[name] for name in ("vhost", "range", "pause") if name in self.query
        }
        values = {name: value for name, value in {**kept, **query}.items() if value is not None}
        return f"{self.prefix}{path}" + (f"?{urlencode(values)}" if values else "")


def is_own_path(path: str) -> bool:
    """Whether a path is one of this site's, without a host."""
    return path.startswith("/") and not path.startswith(("//", "/\\"))
