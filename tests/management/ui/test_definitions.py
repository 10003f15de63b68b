"""The page of definitions: export, the differences of an import, and the import."""

import html
import json
import re
from collections.abc import Iterator
from http.client import HTTPConnection

import httpx
import pytest

from tests.support.brokers.http_api import HttpNode

HOSTILE = "<script>alert(1)</script>"
ESCAPED = "%3Cscript%3Ealert(1)%3C%2Fscript%3E"


@pytest.fixture(scope="module")
def pages(http_node: HttpNode) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=http_node.url, follow_redirects=True, timeout=30) as client:
        assert client.post("login", data={"user": "guest", "password": "guest"}).status_code == 200
        yield client


def shown(reply: httpx.Response, status: int = 200) -> str:
    """The text of a page, without its tags."""
    assert reply.status_code == status, reply.text
    assert HOSTILE not in reply.text
    return html.unescape(" ".join(re.sub("<[^>]*>", " ", reply.text).split()))


def compared(pages: httpx.Client, document: object, vhost: str = "") -> httpx.Response:
    """The page after a file has been sent."""
    files = {"file": ("d.json", json.dumps(document).encode())}
    return pages.post("definitions", files=files, data={"into_vhost": vhost})


def yes(pages: httpx.Client, page: httpx.Response, vhost: str = "") -> httpx.Response:
    """The reply to the button that imports."""
    (digest,) = re.findall(r'name="digest" value="(\w+)"', page.text)
    return pages.post("definitions/import", data={"digest": digest, "into_vhost": vhost})


def test_an_export_is_what_the_api_exports(http_node: HttpNode, pages: httpx.Client) -> None:
    api = http_node.client()
    for query, path in (("", "definitions"), ("?of_vhost=%2F", "definitions/%2F")):
        reply = pages.get(f"definitions/export{query}")
        assert reply.json() == api.get(path).json()
        assert reply.headers["content-disposition"].startswith("attachment; filename=")


def test_an_import_shows_its_differences_first(http_node: HttpNode, pages: httpx.Client) -> None:
    api = http_node.client()
    document = {"vhosts": [{"name": HOSTILE}]}
    page = compared(pages, document)
    assert f"'{HOSTILE}'" in shown(page) and "Import: 1 changes" in shown(page)
    assert api.get(f"vhosts/{ESCAPED}").status_code == 404
    assert "Definitions imported." in shown(yes(pages, page))
    assert api.get(f"vhosts/{ESCAPED}").status_code == 200
    # The file is forgotten with its import.
    assert yes(pages, page).status_code == 409
    assert "would change nothing" in shown(compared(pages, document))


def test_an_import_into_a_vhost(http_node: HttpNode, pages: httpx.Client) -> None:
    queue = {"name": "of-file", "durable": True, "auto_delete": False, "arguments": {}}
    page = compared(pages, {"queues": [queue]}, "/")
    assert "of-file" in shown(page)
    yes(pages, page, "/")
    assert http_node.client().get("queues/%2F/of-file").status_code == 200


def test_files_that_cannot_be_imported_say_why(pages: httpx.Client) -> None:
    broken = pages.post("definitions", files={"file": ("d.json", b"{")})
    assert "The file cannot be imported: not_json" in shown(broken, 400)
    unknown = {"queues": [{"name": "q", "vhost": "none", "durable": True}]}
    assert "The file cannot be imported" in shown(compared(pages, unknown), 400)


@pytest.mark.parametrize(
    ("header", "status"),
    [(("content-length", str(2**30)), 413), (("transfer-encoding", "chunked"), 411)],
)
def test_long_bodies_are_refused_unread(
    http_node: HttpNode, header: tuple[str, str], status: int
) -> None:
    url = httpx.URL(http_node.url)
    connection = HTTPConnection(url.host, url.port, timeout=30)
    connection.putrequest("POST", "/definitions")
    connection.putheader(*header)
    connection.endheaders()
    assert connection.getresponse().status == status
    connection.close()
