"""The application: the routers of all endpoints, RabbitMQ's errors and headers."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from fastapi import APIRouter, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import ASGIApp

import warrenmq
from warrenmq.management.errors import ASK_FOR_LOGIN, HttpRefusal, LoginRequired, not_found
from warrenmq.management.headers import WithHeaders
from warrenmq.management.prometheus import pages
from warrenmq.management.raw_path import RawPath
from warrenmq.management.routes import (
    bindings,
    checks,
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
from warrenmq.management.rows import JsonReply
from warrenmq.management.sessions import NodePlace, Sessions

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
    pages.router,
)


def make_app(place: NodePlace) -> ASGIApp:
    """The HTTP API of the node at `place`."""
    sessions = Sessions(place)

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        yield
        sessions.close()

    app = FastAPI(
        title="warren",
        version=warrenmq.__version__,
        docs_url=None,
        redoc_url=None,
        openapi_url="/api/openapi.json",
        redirect_slashes=False,
        lifespan=lifespan,
    )
    app.state.sessions = sessions
    for router in ROUTERS:
        app.include_router(router)
    app.add_exception_handler(HttpRefusal, _on_refusal)
    app.add_exception_handler(LoginRequired, _on_no_login)
    app.add_exception_handler(HTTPException, _on_http_error)
    app.add_exception_handler(RequestValidationError, _on_invalid)

    routes = [route for router in ROUTERS for route in router.routes]
    return WithHeaders(RawPath(app, [each for each in routes if isinstance(each, APIRoute)]))


def _on_refusal(_request: Request, refusal: Exception) -> Response:
    assert isinstance(refusal, HttpRefusal)
    content = {"error": refusal.error, "reason": refusal.reason}
    return JsonReply(content, refusal.status, refusal.headers)


def _on_no_login(_request: Request, _error: Exception) -> Response:
    return Response(None, 401, ASK_FOR_LOGIN)


def _on_http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == 404:
        return _on_refusal(request, not_found())
    return JsonReply({"error": "bad_request", "reason": error.detail}, error.status_code)


def _on_invalid(_request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    reasons = [f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors()]
    return JsonReply({"error": "bad_request", "reason": reasons}, 400)
