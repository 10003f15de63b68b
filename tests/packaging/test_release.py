"""The steps of `make release` that cost nothing: which Pythons it takes, and what it refuses.

test_install.py drives the files; a release drives each of them on each Python.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tools.release.artifacts import only, write_checksums
from tools.release.commands import ReleaseError, run
from tools.release.driving import DrivenNode, check_version
from tools.release.interpreters import Interpreter, find, probe
from warrenmq import __version__

FOUND = {
    "path": "/opt/python",
    "implementation": "CPython",
    "version": [3, 12, 1],
    "has_headers": True,
    "has_gil": True,
}


def program(path: Path, script: str) -> Path:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def python(directory: Path, name: str, **differences: object) -> str:
    """A command that answers as an interpreter would."""
    found = json.dumps(FOUND | differences)
    return str(program(directory / name, f"cat <<'END'\n{found}\nEND"))


def test_the_running_python_is_found() -> None:
    found = probe(sys.executable)
    if isinstance(found, str):
        assert "Python.h" in found
    else:
        assert found.tag == f"cp3{sys.version_info[1]}"


@pytest.mark.parametrize(
    ("differences", "reason"),
    [
        ({"implementation": "PyPy"}, "it is PyPy, and mypyc compiles for CPython only"),
        ({"version": [3, 10, 2]}, "it is 3.10, and warren needs 3.11 or newer"),
        ({"has_headers": False}, "it has no Python.h: install python3.12-dev"),
        ({"has_gil": False}, "it is a build without the GIL, which warren is not tested on"),
    ],
    ids=["implementation", "old", "headers", "GIL"],
)
def test_an_unfit_python_is_skipped(
    tmp_path: Path, differences: dict[str, object], reason: str
) -> None:
    command = python(tmp_path, "python", **differences)
    assert find([command]) == ([], [f"{command}: skipped, {reason}"])


def test_each_python_is_taken_once_and_each_other_one_has_a_line(tmp_path: Path) -> None:
    one, again = python(tmp_path, "one"), python(tmp_path, "again")
    broken = str(program(tmp_path / "broken", "echo 'no such version' >&2; exit 127"))
    found, skipped = find([one, again, broken, "python3.99"])
    assert found == [Interpreter(Path("/opt/python"), (3, 12, 1))]
    assert (found[0].tag, found[0].name) == ("cp312", "CPython 3.12.1")
    assert skipped == [
        f"{again}: skipped, /opt/python is cp312 already",
        f"{broken}: skipped, it does not run: no such version",
        "python3.99: skipped, not on this machine",
    ]


def test_checksums_are_those_of_the_files(tmp_path: Path) -> None:
    (tmp_path / "one.whl").write_bytes(b"1")
    (tmp_path / "two.tar.gz").write_bytes(b"2")
    for _ in range(2):
        write_checksums(tmp_path)
    check = ["sha256sum", "--check", "--strict", "SHA256SUMS"]
    done = subprocess.run(check, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout == "one.whl: OK\ntwo.tar.gz: OK\n"
    (tmp_path / "one.whl").write_bytes(b"3")
    assert subprocess.run(check, cwd=tmp_path, capture_output=True, check=False).returncode == 1


def test_a_wheel_that_was_not_built_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a-py3-none-any.whl").touch()
    with pytest.raises(ReleaseError, match="there is: none"):
        only(tmp_path, "*-cp312-*.whl")


def test_a_failed_step_shows_its_output() -> None:
    with pytest.raises(ReleaseError, match=r"exit status 3: .*\nout\nno room"):
        run("sh", "-c", "echo out; echo no room >&2; exit 3")


def test_another_build_or_version_is_refused(tmp_path: Path) -> None:
    program(tmp_path / "warren", f"echo 'warren {__version__} (interpreted)'")
    check_version(tmp_path, __version__, "interpreted")
    for version, build in ((__version__, "compiled"), ("0.0.1", "interpreted")):
        with pytest.raises(ReleaseError, match="warren --version says"):
            check_version(tmp_path, version, build)


def test_a_node_that_does_not_start_is_an_error(tmp_path: Path) -> None:
    program(tmp_path / "warren", "echo cannot start: no room; exit 1")
    node = DrivenNode(tmp_path, tmp_path / "node")
    with pytest.raises(ReleaseError, match="cannot start: no room"):
        node.start()
    node.close()
