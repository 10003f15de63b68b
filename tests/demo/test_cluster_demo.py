"""`make demo-cluster` passes all its checks, and leaves no file behind."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.etcd import require_etcd

pytestmark = [pytest.mark.kill, pytest.mark.slow]


def test_the_demo_of_a_cluster_passes_its_checks(tmp_path: Path) -> None:
    require_etcd()
    done = subprocess.run(
        [sys.executable, "-m", "demo.cluster", "--seconds", "0"],
        capture_output=True,
        text=True,
        env=os.environ | {"TMPDIR": str(tmp_path), "COLUMNS": "200"},
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "All 7 checks passed" in done.stdout
    assert "the copies of queue 'kept' in vhost '/' are equal" in done.stdout
    assert list(tmp_path.iterdir()) == []
