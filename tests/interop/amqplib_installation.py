"""Fixture `node_directory`: amqplib from npm, installed once below build/ from the locked versions.

The first run of the tests installs the library. Several runs may work at the same time.
"""

import fcntl
import filecmp
import shutil
import subprocess
from pathlib import Path

import pytest

SCENARIO = Path(__file__).parent / "node"
INSTALLED = Path(__file__).parent.parent.parent / "build" / "interop-node"
LOCK = "package-lock.json"
# Copy of the lock file, which marks a finished installation.
MARK = INSTALLED / "node_modules" / LOCK
INSTALL_TIMEOUT_S = 200


@pytest.fixture(scope="module")
def node_directory() -> Path:
    """A directory whose node_modules hold amqplib."""
    for tool in ("node", "npm"):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed")
    INSTALLED.mkdir(parents=True, exist_ok=True)
    with (INSTALLED / "installing").open("w") as guard:
        # npm first removes the old installation, which another run may be using.
        fcntl.flock(guard, fcntl.LOCK_EX)
        if not is_installed():
            install()
    return INSTALLED


def is_installed() -> bool:
    """Whether the installation is finished and matches the lock file."""
    return MARK.is_file() and filecmp.cmp(MARK, SCENARIO / LOCK, shallow=False)


def install() -> None:
    """Install amqplib with npm; skip the test when npm fails."""
    for name in ("package.json", LOCK):
        shutil.copy(SCENARIO / name, INSTALLED / name)
    command = [
        "npm",
        "ci",
        "--no-audit",
        "--no-fund",
        "--ignore-scripts",
        "--prefer-offline",
        "--loglevel=error",
    ]
    done = subprocess.run(
        command, cwd=INSTALLED, capture_output=True, text=True, timeout=INSTALL_TIMEOUT_S
    )
    if done.returncode != 0:
        last = (done.stderr.strip() or "no message").splitlines()[-1]
        pytest.skip(f"npm could not install amqplib: {last}")
    shutil.copy(SCENARIO / LOCK, MARK)
