"""The application: the routers of all endpoints, and the middleware around them."""

from typing import Final

from fastapi import APIRouter, FastAPI
from fastapi.routing import APIRoute
from starlette.types import ASGIApp

import warrenmq
from warrenmq.management.error_replies import add_error_replies
from warrenmq.management.headers import WithHeaders
from warrenmq.management.jobs.runs import Runs
from warrenmq.management.login_gate import LoginGate
from warrenmq.management.openapi.document import document
from warrenmq.management.prometheus import pages as metrics
from warrenmq.management.raw_path import RawPath
from warrenmq.management.recent_listings import ForgetsListings, RecentListings
from warrenmq.management.routes import (
    bindings,
    checks,
    command_line,
    connections,
    definitions,
    exchanges,
    features,
    logins,
    nodes,
    overview,
    parameters,
    policies,
    queues,
    users,
    vhosts,
)
from warrenmq.management.routes.warren import (
    health,
    jobs,
    maintenance,
    messages,
    mirrors,
    pauses,
    processes,
    readers,
    routing,
    schedules,
    storage,
    tickets,
)
from warrenmq.management.rows import JsonReply
from warrenmq.management.serving.cors import WithCors
from warrenmq.management.serving.request_log import Logged, RequestLog
from warrenmq.management.sessions import Sessions
from warrenmq.management.statistics.statistics import Statistics
from warrenmq.management.ui.api import Site
from warrenmq.management.ui.app import BesidePages, make_pages
from warrenmq.server.config.options.http_listeners import ManagementOptions

_described = APIRouter(prefix="/api")


@_described.get("/openapi.json", include_in_schema=False)
def openapi() -> JsonReply:
    """The OpenAPI document, which says nothing of this node: no login is needed."""
    return JsonReply(document(all_routes()))


# Each file of routes adds its router here.
ROUTERS: Final[tuple[APIRouter, ...]] = (
    overview.router,
    nodes.router,
    connections.router,
    exchanges.router,
    queues.router,
    bindings.router,
    vhosts.router,
    users.router,
    policies.router,
    parameters.router,
    definitions.router,
    checks.router,
    checks.old_router,
    logins.router,
    features.router,
    command_line.router,
    storage.router,
    health.router,
    mirrors.router,
    maintenance.router,
    readers.router,
    messages.router,
    pauses.router,
    routing.router,
    tickets.router,
    processes.router,
    jobs.router,
    schedules.router,
    metrics.router,
    _described,
)


def all_routes() -> list[APIRoute]:
    """The routes of all endpoints."""
    routes = [route for router in ROUTERS for route in router.routes]
    return [route for route in routes if isinstance(route, APIRoute)]


def make_app(
    sessions: Sessions, statistics: Statistics, options: ManagementOptions, runs: Runs | None
) -> ASGIApp:
    """The HTTP API over `sessions` with a node; `statistics` has the figures of its feed.

    `runs`: the jobs of the node, None if the process does not run them.
    """
    app = FastAPI(
        title="warren",
        version=warrenmq.__version__,
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        redirect_slashes=False,
    )
    app.state.sessions = sessions
    app.state.login_gate = LoginGate()
    app.state.statistics = statistics
    app.state.options = options
    app.state.runs = runs
    listings = RecentListings(options.db_cache_multiplier, options.statistics_interval_ms / 1000)
    app.state.listings = listings
    for router in ROUTERS:
        app.include_router(router)
    add_error_replies(app)

    site: ASGIApp = ForgetsListings(app, listings)
    site = WithCors(RawPath(site, all_routes(), options.path_prefix), options)
    site = WithHeaders(site, dict(options.headers))
    pages = make_pages(Site(site, options.path_prefix), options.session_timeout * 60.0)
    site = BesidePages(site, pages, options.path_prefix)
    return site if options.http_log_dir is None else Logged(site, RequestLog(options.http_log_dir))
