"""`warren service` writes files that systemd accepts, and tells what is installed."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.support.command_line import warren
from warrenmq.cli.systemd import app
from warrenmq.cli.systemd.files import FILES
from warrenmq.cli.systemd.files import UNIT as UNIT_FILE

UNIT = "usr/lib/systemd/system/warren.service"
# What `systemd-analyze security` gives the unit at most: 0 is a service without any rights, 10 one
# with all.
EXPOSURE_MAX = 2.0


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A directory with the files of the service, for a program that exists."""
    root = tmp_path / "root"
    done = CliRunner().invoke(
        app.service, ["install", "--root", str(root), "--program", sys.executable]
    )
    assert done.exit_code == 0, done.output
    assert f"installed {root / UNIT}" in done.output
    return root


def status(root: Path, exit_code: int = 0) -> Any:
    """What `warren service status` tells of `root`."""
    done = CliRunner().invoke(app.service, ["status", "--root", str(root), "--json"])
    assert done.exit_code == exit_code, done.output
    return json.loads(done.output)


def run(*command: object) -> str:
    """The output of one of systemd's tools; skips the test without systemd."""
    if shutil.which(str(command[0])) is None:
        pytest.skip(f"{command[0]} is not installed")
    done = subprocess.run(
        [str(part) for part in command],
        check=False,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def test_print_shows_the_files_with_their_places() -> None:
    done = warren("service", "install", "--print", "--program", sys.executable)
    assert done.returncode == 0, done.stderr
    for each in FILES:
        assert f"# /etc/{each.place}\n{each.text(sys.executable)}" in done.stdout


def test_systemd_accepts_the_unit(root: Path) -> None:
    assert run("systemd-analyze", "verify", "--man=no", root / UNIT) == ""
    rated = run("systemd-analyze", "security", "--offline=true", "--no-pager", root / UNIT)
    exposure = re.search(r"Overall exposure level for warren.service: (\S+)", rated)
    assert exposure is not None and float(exposure[1]) <= EXPOSURE_MAX, rated


def test_systemd_makes_the_user_and_the_directories(root: Path) -> None:
    (root / "etc").mkdir()
    run("systemd-sysusers", f"--root={root}")
    run("systemd-tmpfiles", f"--root={root}", "--create")
    user = (root / "etc/passwd").read_text().strip().split(":")
    assert (user[0], user[5], user[6]) == ("warren", "/var/lib/warren", "/usr/sbin/nologin")
    for path, owner in (("etc", 0), ("var/lib", int(user[2])), ("var/log", int(user[2]))):
        found = (root / path / "warren").stat()
        assert (found.st_mode & 0o777, found.st_uid) == (0o750, owner)
        assert found.st_gid == int(user[3])


def test_status_tells_what_is_installed_and_what_differs(root: Path) -> None:
    found = status(root)
    assert found["program"] == sys.executable and found["drop_ins"] == []
    assert {each["state"] for each in found["files"]} == {"as in this release"}
    unit = root / UNIT
    unit.write_text(unit.read_text().replace("UMask=0027", "UMask=0022"))
    (root / "usr/lib/tmpfiles.d/warren.conf").unlink()
    drop_in = root / "etc/systemd/system/warren.service.d/override.conf"
    drop_in.parent.mkdir(parents=True)
    drop_in.write_text("[Service]\nLimitNOFILE=1048576\n")
    found = status(root, 1)
    assert [(each["kind"], each["state"]) for each in found["files"]] == [
        ("unit", "differs from this release"),
        ("user", "as in this release"),
        ("directories", "missing"),
    ]
    assert found["drop_ins"] == [str(drop_in)]
    # An administrator's unit counts before a package's, for another program too.
    own = root / "etc/systemd/system/warren.service"
    own.write_text(UNIT_FILE.text("/opt/w"))
    found = status(root, 1)
    assert found["files"][0]["path"] == str(own) and found["program"] == "/opt/w"


def test_a_machine_that_cannot_have_the_service_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def refusal(*arguments: str) -> str:
        done = CliRunner().invoke(app.service, ["install", "--program", sys.executable, *arguments])
        assert done.exit_code == 2, done.output
        return done.output

    monkeypatch.setattr(app, "_BOOTED", tmp_path / "none")
    assert "systemd does not run this machine; --root DIR" in refusal()
    monkeypatch.setattr(app, "_BOOTED", tmp_path)
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert "only root may install a service" in refusal()
    home = Path("/") / "home"
    assert "is in a home directory" in refusal("--root", "/", "--program", f"{home}/me/bin/warren")
    assert "/no/warren is no program" in refusal("--program", "/no/warren")


def test_install_makes_the_machine_ready_and_status_shows_the_running_node(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Programs with the names of systemd's record their arguments."""
    calls = tmp_path / "calls"
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("systemctl", "systemd-sysusers", "systemd-tmpfiles"):
        program = programs / name
        program.write_text(
            f'#!/bin/sh\necho {name} "$@" >>{calls}\n'
            'test "$1" != show || printf \'LoadState=loaded\\nActiveState=active\\nSubState=running\\n'
            "UnitFileState=enabled\\nMainPID=7\\nStatusText=accepting clients\\nNRestarts=2\\n"
            "NeedDaemonReload=no\\n'\n"
        )
        program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")
    monkeypatch.setattr(app, "_BOOTED", tmp_path)
    monkeypatch.setattr("os.geteuid", lambda: 0)
    etc = tmp_path / "etc"
    monkeypatch.setattr(app, "path_of", lambda file, root: etc / file.place)
    done = CliRunner().invoke(app.service, ["install", "--program", sys.executable])
    assert done.exit_code == 0, done.output
    assert "to use these files: systemctl restart warren" in done.output
    assert calls.read_text().splitlines()[:3] == [
        f"systemd-sysusers {etc}/sysusers.d/warren.conf",
        f"systemd-tmpfiles --create {etc}/tmpfiles.d/warren.conf",
        "systemctl daemon-reload",
    ]
    shown = CliRunner().invoke(app.service, ["status"])
    assert "active (running), enabled, pid 7, restarts: 2, accepting clients" in shown.output
    told = CliRunner().invoke(app.service, ["status", "--json"])
    assert json.loads(told.output)["service"]["ActiveState"] == "active"
