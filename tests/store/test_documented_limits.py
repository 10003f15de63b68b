"""The limits, settings and names of code in the pages of docs/storage/ against the code.

The tables of limits and settings are compared with the constants. All code that the pages name must
exist.
"""

import ast
import importlib
import re
from pathlib import Path

import pytest

from tests.support.stores.documented_bytes import PAGES, page_text, table, tables
from warrenmq.server.config.load import load
from warrenmq.server.config.settings import Config

ROOT = Path(__file__).parent.parent.parent
SOURCES = ROOT / "src" / "warrenmq"

UNITS = {"": 1, "ms": 1, "KiB": 1024, "MiB": 1024**2, "GiB": 1024**3, "s": 1}


def value_of(text: str) -> int:
    match = re.fullmatch(r"([\d,]+) ?(\w*)", text)
    assert match, text
    return int(match[1].replace(",", "")) * UNITS[match[2]]


def test_limits_are_those_of_the_code() -> None:
    rows = [row for rows in tables("| what | value | code |") for row in rows]
    assert len(rows) > 10
    for what, value, code in rows:
        path, name = code.strip("`").split(":")
        module = importlib.import_module("warrenmq." + path.removesuffix(".py").replace("/", "."))
        assert getattr(module, name) == value_of(value), what


def test_defaults_are_those_of_the_configuration() -> None:
    config = Config()
    rows = table("| setting | default |")
    assert len(rows) == 5
    for setting, value in rows:
        name = setting.strip("`")
        holder = config if hasattr(config, name) else config.broker
        if hasattr(holder, name):
            assert getattr(holder, name) == value_of(value), name
        else:
            check_setting(name, value)


def check_setting(name: str, value: str) -> None:
    """A setting with one value only: that value is accepted."""
    load(environment={}, settings=[f"{name}={value_of(value)}"])


def names_in_page() -> list[str]:
    names = re.findall(r"`((?:store|queues|broker|server)/[a-z_/]+\.py:[A-Za-z_.]+)`", page_text())
    return sorted(set(names))


@pytest.mark.parametrize("name", names_in_page())
def test_code_that_the_page_names_is_there(name: str) -> None:
    path, symbol = name.split(":")
    body: list[ast.stmt] = ast.parse((SOURCES / path).read_text(encoding="utf-8")).body
    for part in symbol.split("."):
        found = [node for node in body if part in names_of(node)]
        assert found, f"{part} is not in {path}"
        body = found[0].body if isinstance(found[0], ast.ClassDef) else []


def names_of(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.ClassDef | ast.FunctionDef):
        return [node.name]
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        return [node.target.id]
    return []


def test_files_that_the_page_names_are_there() -> None:
    text = page_text()
    for path in re.findall(r"`((?:store|queues|broker|server)/[a-z_/]+\.py)`", text):
        assert (SOURCES / path).is_file(), path
    for path in re.findall(r"`(tests/[a-z_/]+\.py)`", text):
        assert (ROOT / path).is_file(), path
    for path in re.findall(r"\]\(((?:\.\./)*[a-z0-9_/-]+\.md)(?:#[a-z-]+)?\)", text):
        assert (PAGES / path).is_file(), path
