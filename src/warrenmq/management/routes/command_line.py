"""Endpoints for the command line: the script `rabbitmqadmin`, for all who reach the port."""

from functools import cache
from pathlib import Path
from typing import Final

from fastapi import APIRouter
from starlette.responses import HTMLResponse, Response

from warrenmq.management.cli import rabbitmqadmin

router: Final = APIRouter(include_in_schema=False)

_PAGE: Final = """\
<!DOCTYPE html>
<html lang="en">
<head><meta charset="utf-8"><title>rabbitmqadmin</title></head>
<body>
<h1>rabbitmqadmin</h1>
<p><a href="rabbitmqadmin" download>Download</a> the script for the command line, make it
executable, and ask it for its commands: <code>./rabbitmqadmin help subcommands</code>.
It needs Python 3.8. RabbitMQ's own script works with this broker, too.</p>
</body>
</html>
"""


@cache
def _script() -> bytes:
    return Path(rabbitmqadmin.__file__).read_bytes()


@router.get("/cli/rabbitmqadmin")
def show_script() -> Response:
    """The script."""
    return Response(_script(), media_type="application/octet-stream")


@router.get("/cli")
@router.get("/cli/index.html")
def show_page() -> Response:
    """How to get it."""
    return HTMLResponse(_PAGE)
