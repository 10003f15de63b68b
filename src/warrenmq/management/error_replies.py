"""Turns what a request raises into RabbitMQ's replies; no reply shows a trace."""

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from warrenmq.management.errors import (
    ASK_FOR_LOGIN,
    HttpRefusal,
    LoginRequired,
    NotAcceptable,
    not_found,
)
from warrenmq.management.rows import JsonReply


def add_error_replies(app: FastAPI) -> None:
    """Let `app` reply to everything that its routes raise."""
    app.add_exception_handler(HttpRefusal, _on_refusal)
    app.add_exception_handler(LoginRequired, _on_no_login)
    app.add_exception_handler(NotAcceptable, _on_not_acceptable)
    app.add_exception_handler(HTTPException, _on_http_error)
    app.add_exception_handler(RequestValidationError, _on_invalid)
    app.add_exception_handler(Exception, _on_fault)


def refused(refusal: HttpRefusal) -> JsonReply:
    """The reply of a refusal."""
    content = {"error": refusal.error, "reason": refusal.reason}
    return JsonReply(content, refusal.status, refusal.headers)


def _on_refusal(_request: Request, refusal: Exception) -> Response:
    assert isinstance(refusal, HttpRefusal)
    return refused(refusal)


def _on_no_login(_request: Request, _error: Exception) -> Response:
    return Response(None, 401, ASK_FOR_LOGIN)


def _on_not_acceptable(_request: Request, _error: Exception) -> Response:
    return Response(None, 406)


def _on_http_error(_request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == 404:
        return refused(not_found())
    return JsonReply({"error": "bad_request", "reason": error.detail}, error.status_code)


def _on_invalid(_request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    reasons = [f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors()]
    return JsonReply({"error": "bad_request", "reason": reasons}, 400)


def _on_fault(_request: Request, _error: Exception) -> Response:
    # The log has the trace.
    return refused(HttpRefusal(500, "internal_error", "the log of the node says what is wrong"))
