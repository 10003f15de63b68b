"""The pages of docs/decisions have unique numbers without gaps, which their titles repeat."""

from pathlib import Path

PAGES = sorted((Path(__file__).parent.parent.parent / "docs" / "decisions").glob("*.md"))


def test_decisions_are_numbered_from_one() -> None:
    """No number is missing or used twice; of two changes with one number, the later one moves."""
    assert [page.name[:3] for page in PAGES] == [
        f"{number:03}" for number in range(1, len(PAGES) + 1)
    ]


def test_titles_say_the_number() -> None:
    titles = [page.read_text(encoding="utf-8").splitlines()[0] for page in PAGES]
    assert [title[:6] for title in titles] == [f"# {page.name[:3]} " for page in PAGES]
