"""The pages that Prometheus scrapes: `/metrics`, `/metrics/per-object`, `/metrics/detailed`.

The port of the HTTP API asks for a monitor's login. As in RabbitMQ, a port of metrics alone does
not: there the process asks the node in its own name.
"""

from collections.abc import Callable, Iterator
from typing import Annotated, Final

from fastapi import APIRouter, Depends, FastAPI, Header, Query
from fastapi.routing import APIRoute
from starlette.responses import Response, StreamingResponse
from starlette.types import ASGIApp

from warrenmq.admin.client.client import AdminClient, AdminRefusedError, NodeUnreachableError
from warrenmq.management.access import Monitor
from warrenmq.management.error_replies import add_error_replies
from warrenmq.management.prometheus.scrape import FAMILIES, USUAL_FAMILIES, Page, scrape
from warrenmq.management.prometheus.text import content_type, encode
from warrenmq.management.raw_path import RawPath
from warrenmq.management.sessions import NodePlace, refusal, unreachable
from warrenmq.server.config.options.http_listeners import MetricsOptions

_USUAL: Final = frozenset(USUAL_FAMILIES)

_Accept = Annotated[str, Header()]
_Names = Annotated[frozenset[str], Query()]


def metrics_router(
    open_client: Callable[..., Iterator[AdminClient]], path: str, is_per_object: bool
) -> APIRouter:
    """The pages from `path` on; `open_client` is the dependency that gives the session.

    `is_per_object`: the first page has labels for each object too.
    """
    router = APIRouter(include_in_schema=False)

    @router.get(path or "/")
    def metrics(
        client: Annotated[AdminClient, Depends(open_client)], accept: _Accept = ""
    ) -> Response:
        """All usual metrics."""
        return _shown(client, Page(_USUAL, not is_per_object), accept)

    @router.get(f"{path}/per-object")
    def per_object(
        client: Annotated[AdminClient, Depends(open_client)], accept: _Accept = ""
    ) -> Response:
        """All usual metrics, with labels for each object."""
        return _shown(client, Page(_USUAL, False), accept)

    @router.get(f"{path}/detailed")
    def detailed(
        client: Annotated[AdminClient, Depends(open_client)],
        accept: _Accept = "",
        family: _Names = frozenset(),
        vhost: _Names = frozenset(),
    ) -> Response:
        """Chosen families of metrics; unknown families are ignored, as in RabbitMQ."""
        families = family.intersection(FAMILIES)
        return _shown(client, Page(families, False, "detailed_", vhost or None), accept)

    return router


def _shown(client: AdminClient, page: Page, accept: str) -> Response:
    try:
        families = scrape(client, page)
    except AdminRefusedError as error:
        raise refusal(error) from None
    except NodeUnreachableError as error:
        raise unreachable(error) from None
    # A page of all objects may have many megabytes, and is sent while it is made.
    return StreamingResponse(encode(families, accept), media_type=content_type(accept))


def _of_caller(caller: Monitor) -> Iterator[AdminClient]:
    """The session of a user who monitors the node."""
    with caller.session() as call:
        yield call.client


router: Final = metrics_router(_of_caller, "/metrics", False)


def make_metrics_app(place: NodePlace, options: MetricsOptions) -> ASGIApp:
    """The pages alone, for all who reach the port."""

    def of_process() -> Iterator[AdminClient]:
        try:
            client = AdminClient(place.admin(), "metrics")
        except AdminRefusedError as error:
            raise refusal(error) from None
        except NodeUnreachableError as error:
            raise unreachable(error) from None
        with client:
            yield client

    app = FastAPI(openapi_url=None, redirect_slashes=False)
    pages = metrics_router(of_process, options.path, options.is_per_object)
    app.include_router(pages)
    add_error_replies(app)
    return RawPath(app, [each for each in pages.routes if isinstance(each, APIRoute)])
