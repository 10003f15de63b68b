"""The application of the pages: sign-in, static files, and the routers of all pages."""

from importlib.resources import files
from typing import Annotated, Any, Final
from urllib.parse import urlencode

import htpy as h
from fastapi import APIRouter, FastAPI, Form, Request
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from warrenmq.management.headers import WithHeaders
from warrenmq.management.raw_path import RawPath
from warrenmq.management.ui import frame
from warrenmq.management.ui.answers import page_again
from warrenmq.management.ui.api import ApiError, Site
from warrenmq.management.ui.body_limit import BodyLimit
from warrenmq.management.ui.elements.forms import text_field
from warrenmq.management.ui.page import ForeignForm, PageOf, SignInNeeded, is_own_form
from warrenmq.management.ui.pages import (
    bindings,
    channels,
    connections,
    consumers,
    definitions,
    overview,
    search,
)
from warrenmq.management.ui.pages.exchanges import all_exchanges, one_exchange
from warrenmq.management.ui.pages.mirrors import all_mirrors, rebalancing
from warrenmq.management.ui.pages.mirrors import one_queue as mirrors_of_queue
from warrenmq.management.ui.pages.nodes import all_nodes, configuration, log, maintenance, one_node
from warrenmq.management.ui.pages.pipeline import (
    all_readers,
    new_job,
    one_job,
    one_reader,
    one_schedule,
)
from warrenmq.management.ui.pages.policies import all_policies, one_policy
from warrenmq.management.ui.pages.queues import all_queues, moving, new_queue, one_queue
from warrenmq.management.ui.pages.storage import stores
from warrenmq.management.ui.pages.users import all_users, one_user, permissions, rights
from warrenmq.management.ui.pages.vhosts import all_vhosts, one_vhost
from warrenmq.management.ui.sign_ins import COOKIE, SignIns
from warrenmq.management.ui.visit import is_own_path

# Each file of pages adds its router here.
ROUTERS: Final[tuple[APIRouter, ...]] = (
    overview.router,
    connections.router,
    channels.router,
    consumers.router,
    all_queues.router,
    new_queue.router,
    moving.router,
    one_queue.router,
    all_exchanges.router,
    one_exchange.router,
    bindings.router,
    search.router,
    all_policies.router,
    one_policy.router,
    all_users.router,
    one_user.router,
    permissions.router,
    rights.router,
    all_vhosts.router,
    one_vhost.router,
    definitions.router,
    stores.router,
    all_mirrors.router,
    rebalancing.router,
    mirrors_of_queue.router,
    all_nodes.router,
    one_node.router,
    configuration.router,
    log.router,
    maintenance.router,
    all_readers.router,
    one_reader.router,
    new_job.router,
    one_job.router,
    one_schedule.router,
)

# Scripts, styles and forms of this site only, and no frame of another one.
_HEADERS: Final = {
    "content-security-policy": (
        "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; "
        "object-src 'none'"
    ),
    "referrer-policy": "same-origin",
    "x-frame-options": "DENY",
}
_frame = APIRouter()
# Files that change with a version only.
_CACHED: Final = {"cache-control": "max-age=3600"}
_YEAR_S: Final = 365 * 86400


def make_pages(site: Site, idle_s: float) -> ASGIApp:
    """The pages over the API `site`, with the same prefix; `idle_s` unused ends a sign-in."""
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None, redirect_slashes=False)
    sign_ins = SignIns(site, idle_s)
    app.state.sign_ins = sign_ins
    app.state.prefix = site.prefix
    routers = (_frame, *ROUTERS)
    for router in routers:
        app.include_router(router)
    app.add_exception_handler(SignInNeeded, _ask_to_sign_in)
    app.add_exception_handler(ApiError, _show_refusal)
    app.add_exception_handler(ForeignForm, _refuse_form)
    app.add_exception_handler(RequestValidationError, _refuse_fields)
    app.add_exception_handler(404, _not_found)
    routes = [each for router in routers for each in router.routes if isinstance(each, APIRoute)]
    return WithHeaders(BodyLimit(RawPath(app, routes, site.prefix), sign_ins), _HEADERS)


class BesidePages:
    """Middleware: the API for its paths, and `pages` for all others."""

    def __init__(self, app: ASGIApp, pages: ASGIApp, prefix: str) -> None:
        self._app = app
        self._pages = pages
        self._api = tuple([f"{prefix}/{each}" for each in ("api", "cli", "metrics")])

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Carry out one request."""
        path = scope.get("path", "")
        is_api = path in self._api or path.startswith(tuple([f"{each}/" for each in self._api]))
        await (self._app if is_api else self._pages)(scope, receive, send)


@_frame.get("/static/{name}")
def static_file(name: str) -> Response:
    """The style sheet, the script and the icon."""
    if name == "htmx.js":
        found = files("django_htmx") / "static" / "django_htmx" / "htmx-4.min.js"
        return Response(found.read_bytes(), media_type="text/javascript", headers=_CACHED)
    kinds = {"style.css": "text/css", "icon.svg": "image/svg+xml"}
    if name not in kinds:
        return Response(status_code=404)
    found = files("warrenmq.management.ui") / "static" / name
    return Response(found.read_bytes(), media_type=kinds[name], headers=_CACHED)


@_frame.get("/")
def first(request: Request) -> Response:
    """The first page."""
    return RedirectResponse(f"{request.app.state.prefix}/overview", 303)


@_frame.get("/login")
def login_page(request: Request, to: str = "") -> Response:
    """The form to sign in; `to` is the page to show then."""
    return _login(request, to, "")


@_frame.post("/login")
async def login(
    request: Request,
    user: Annotated[str, Form()] = "",
    password: Annotated[str, Form()] = "",
    to: Annotated[str, Form()] = "",
) -> Response:
    """Sign a user in."""
    if not is_own_form(request):
        raise ForeignForm
    sign_ins: SignIns = request.app.state.sign_ins
    peer = request.client.host if request.client is not None else ""
    try:
        name = await sign_ins.sign_in(user, password, peer)
    except ApiError as error:
        return _login(request, to, error.reason, 503 if error.status >= 500 else 401)
    # Whoever was signed in there is not any more.
    sign_ins.sign_out(request.cookies.get(COOKIE, ""))
    reply = RedirectResponse(request.app.state.prefix + _own_path(to), 303)
    reply.set_cookie(
        COOKIE,
        name,
        path=request.app.state.prefix or "/",
        httponly=True,
        samesite="strict",
        secure=request.url.scheme == "https",
    )
    return reply


@_frame.post("/logout")
def logout(request: Request, page: PageOf) -> Response:
    """Sign the user out."""
    sign_ins: SignIns = request.app.state.sign_ins
    sign_ins.sign_out(request.cookies[COOKIE])
    reply = RedirectResponse(f"{page.prefix}/login", 303)
    reply.delete_cookie(COOKIE, path=page.prefix or "/")
    return reply


@_frame.post("/theme")
def theme(
    page: PageOf, theme: Annotated[str, Form()], back: Annotated[str, Form()] = ""
) -> Response:
    """Remember a theme in the browser."""
    reply = RedirectResponse(page.prefix + _own_path(back.removeprefix(page.prefix)), 303)
    chosen = theme if theme in frame.THEMES else frame.THEMES[0]
    reply.set_cookie(
        "theme", chosen, max_age=_YEAR_S, path=page.prefix or "/", httponly=True, samesite="strict"
    )
    return reply


def _login(request: Request, to: str, failure: str, status: int = 200) -> Response:
    prefix = request.app.state.prefix
    content = h.main(".login")[
        h.h1["warren"],
        failure and h.p(".alarm", role="alert")[failure],
        h.form(".sheet", action=f"{prefix}/login", method="post")[
            h.input(type="hidden", name="to", value=_own_path(to)),
            text_field("user", "User", is_needed=True, completion="username"),
            text_field(
                "password",
                "Password",
                kind="password",
                is_needed=True,
                completion="current-password",
            ),
            h.button(".go", type="submit")["Sign in"],
        ],
    ]
    return HTMLResponse(str(frame.bare_document(prefix, "Sign in", content)), status)


def _own_path(path: str) -> str:
    """`path` if it is one of this site's, without a host."""
    return path if is_own_path(path) else "/overview"


def _ask_to_sign_in(request: Request, error: Exception) -> Response:
    assert isinstance(error, SignInNeeded)
    url = f"{request.app.state.prefix}/login"
    if "hx-request" in request.headers:
        return Response(status_code=200, headers={"hx-redirect": url})
    query = urlencode({"to": error.url}) if error.url not in ("/", "/overview") else ""
    return RedirectResponse(f"{url}?{query}" if query else url, 303)


async def _show_refusal(request: Request, error: Exception) -> Response:
    assert isinstance(error, ApiError)
    if error.status == 401 and error.reason == "Login failed":
        return _ask_to_sign_in(request, SignInNeeded("/"))
    return await _refuse(request, error.status, error.reason)


async def _refuse(request: Request, status: int, reason: str) -> Response:
    """The page of a refused form with the reason, or a page with the reason only."""
    again = None
    if request.method == "POST":
        sent = await request.form()
        again = page_again(request, sent, reason, status=status, is_alarm=True)
    return again or _plain(request, status, reason)


def _refuse_form(request: Request, _error: Exception) -> Response:
    return _plain(request, 403, "Forms of other sites are refused.")


async def _refuse_fields(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    names = ", ".join([str(each["loc"][-1]) for each in error.errors()])
    return await _refuse(request, 400, f"These fields are missing, or have a wrong value: {names}.")


def _not_found(request: Request, _error: Exception) -> Response:
    return _plain(request, 404, "There is no such page.")


def _plain(request: Request, status: int, reason: str) -> Response:
    """A page that says why there is no other."""
    if "hx-request" in request.headers:
        return Response(status_code=204)
    prefix: Any = request.app.state.prefix
    content = h.main(".login")[
        h.h1[f"{status}"],
        h.p(".alarm", role="alert")[reason],
        h.p[h.a(href=f"{prefix}/overview")["To the overview"]],
    ]
    return HTMLResponse(str(frame.bare_document(prefix, str(status), content)), status)
