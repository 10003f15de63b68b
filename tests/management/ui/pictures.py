"""`make pictures`: photographs the main pages, of a cluster with traffic, for README.md and docs/.

The pictures are written to docs/pictures/. They differ in each run, as the figures do.
"""

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


def photograph(browser: Browser, shop: Shop) -> None:
    """Sign in and write the pictures."""
    url = shop.url
    browser.go(f"{url}login")
    browser.type_into("f-user", "guest")
    browser.type_into("f-password", "guest\n")
    eventually(lambda: browser.ask("return location.pathname") == "/overview", "the overview")
    PICTURES.mkdir(exist_ok=True)
    written = 0
    for picture in ALL:
        browser.show_as(picture.width, picture.scheme)
        browser.go(url + picture.path)
        data = browser.picture()
        (PICTURES / f"{picture.name}.png").write_bytes(data)
        print(f"{len(data):8,} bytes  {picture.name}.png")
        written += len(data)
    if written > SIZE_MAX:
        raise SystemExit(f"{written:,} bytes are more than {SIZE_MAX:,}")


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        with running_shop(directory / "shop") as shop, chromium(directory / "profile") as browser:
            time.sleep(TRAFFIC_S)
            photograph(browser, shop)


if __name__ == "__main__":
    main()
