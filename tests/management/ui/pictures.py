"""`make pictures`: photographs pages and a report of a cluster with traffic, for README and docs/.

The pictures are written to docs/pictures/. They differ in each run, as the figures do. Names on the
command line choose some of them.
"""

import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.management.ui.shop import Shop, running_shop
from tests.support.awaiting import eventually
from tests.support.browser import Browser, chromium

PICTURES: Final = Path(__file__).parents[3] / "docs" / "pictures"
# How long the traffic runs before: as long as the shortest range of the charts.
TRAFFIC_S: Final = 75
WIDTH: Final = 1280
PHONE: Final = 390
# Bytes of all pictures together.
SIZE_MAX: Final = 1_500_000


@dataclass(frozen=True)
class Picture:
    """A page below its address, at a width (px) and with the system's colours."""

    name: str
    path: str
    width: int = WIDTH
    scheme: str = "light"


ALL: Final = (
    Picture("overview", "overview?range=1m"),
    Picture("overview-dark", "overview?range=1m", scheme="dark"),
    Picture("overview-phone", "overview?range=1m", width=PHONE),
    Picture("queues", "queues?range=1m"),
    Picture("queue-storage", "queues/%2F/clicks?tab=storage&range=1m"),
    Picture("dead-letters", "queues/%2F/mails.dead?tab=messages"),
    Picture("storage", "storage?range=1m"),
    Picture("mirrors", "mirrors/%2F/orders"),
)


REPORT: Final = "report"


def photograph(browser: Browser, shop: Shop, chosen: list[Picture]) -> None:
    """Sign in and write the pictures of pages."""
    url = shop.url
    browser.go(f"{url}login")
    browser.type_into("f-user", "guest")
    browser.type_into("f-password", "guest\n")
    eventually(lambda: browser.ask("return location.pathname") == "/overview", "the overview")
    for picture in chosen:
        browser.show_as(picture.width, picture.scheme)
        browser.go(url + picture.path)
        write(picture.name, browser.picture())


def photograph_report(browser: Browser, shop: Shop, directory: Path) -> None:
    """Let the job write a report of the first node, and write the picture of its first screen."""
    page = directory / "report.html"
    job = (sys.executable, "-m", "warrenmq", "pipeline", "report", str(page))
    subprocess.run([*job, "--uri", shop.uri, "--snapshots", str(directory)], check=True)
    browser.show_as(WIDTH, "light")
    browser.open(page)
    write(REPORT, browser.picture())


def write(name: str, data: bytes) -> None:
    """Write a picture, and say how large it is."""
    (PICTURES / f"{name}.png").write_bytes(data)
    print(f"{len(data):8,} bytes  {name}.png")


def main(names: list[str]) -> None:
    chosen = [picture for picture in ALL if not names or picture.name in names]
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        with running_shop(directory / "shop") as shop, chromium(directory / "profile") as browser:
            time.sleep(TRAFFIC_S)
            if chosen:
                photograph(browser, shop, chosen)
            if not names or REPORT in names:
                photograph_report(browser, shop, directory)
    size = sum(path.stat().st_size for path in PICTURES.glob("*.png"))
    if size > SIZE_MAX:
        raise SystemExit(f"{size:,} bytes are more than {SIZE_MAX:,}")


if __name__ == "__main__":
    main(sys.argv[1:])
