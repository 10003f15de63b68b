"""The command `warren` as a user types it: version, help, options, configuration errors."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from warrenmq import __version__
from warrenmq.build import build_name


def warren(
    *arguments: str, environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "warrenmq", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "NO_COLOR": "1", "COLUMNS": "120", **(environment or {})},
    )


def test_version_names_the_build() -> None:
    done = warren("--version")
    assert (done.returncode, done.stdout) == (0, f"warren {__version__} ({build_name()})\n")


def test_the_version_loads_neither_broker_nor_spark() -> None:
    program = (
        "import sys\nsys.argv = ['warren', '--version']\n"
        "from warrenmq.cli import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "print([name for name in ('uvloop', 'pyspark', 'warrenmq.broker', 'warrenmq.server', 'warrenmq.perf') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.splitlines()[1] == "[]"


def test_help_lists_the_commands_and_the_flags_that_are_fixed() -> None:
    text = warren("--help").stdout
    assert "server" in text
    assert "perf" in text
    flags = warren("server", "--help").stdout
    for flag in ("--config", "--data-dir", "--node", "--listen", "--management", "--set"):
        assert flag in flags


def test_what_follows_perf_is_for_perf() -> None:
    done = warren("perf", "--help")
    assert done.returncode == 0
    assert "--pmessages" in done.stdout
    assert "warren perf" in done.stdout
    assert warren("perf", "-x1", "-qa", "x-max-length=ten=", "--nonsense").returncode == 2


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--set", "hartbeat=5"], "--set: unknown key 'hartbeat'; did you mean heartbeat?"),
        (["--listen", "nowhere"], "--listen: expected PORT or HOST:PORT, got 'nowhere'"),
        (["--management", "on"], "--management: expected PORT or HOST:PORT, got 'on'"),
    ],
)
def test_a_setting_that_cannot_be_honoured_stops_the_start(
    arguments: list[str], text: str, tmp_path: Path
) -> None:
    done = warren("server", "--data-dir", str(tmp_path / "data"), *arguments)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"warren: {text}\n")
    assert not (tmp_path / "data").exists()


def test_a_configuration_file_error_names_file_and_line(tmp_path: Path) -> None:
    path = tmp_path / "warren.conf"
    path.write_text("heartbeat = 30\nauth_backends.1 = ldap\n")
    done = warren("server", environment={"WARREN_CONFIG_FILE": str(path)})
    assert done.returncode == 2
    assert done.stderr == (
        f"warren: {path}:2: auth_backends.1: only internal is available, got 'ldap'\n"
    )
