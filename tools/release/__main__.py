"""Makes a release in dist/: `make release`, or `python -m tools.release`.

    make release
    make release PYTHONS="python3.12 /opt/python3.13/bin/python"

builds the source distribution, from it a wheel with compiled modules for each of the Pythons, and
a wheel without; installs each wheel in empty environments, without and with the extra `all`, and
drives the broker that it brings; then writes the components and the checksums. A Python that is
not there is skipped with a line. Any other fault ends the release with exit status 1.

docs/operations/releasing.md is the page about it.
"""

import argparse
import sys
import tempfile
from pathlib import Path

import warrenmq
from tools.release import artifacts, interpreters
from tools.release.commands import ROOT, ReleaseError, run
from tools.release.driving import NoWheelError, drive, install
from tools.release.interpreters import Interpreter

EXTRA = "all"


def say(text: str) -> None:
    print(f"release: {text}", flush=True)


def describe_sources() -> str:
    """The commit that is released, and whether the working tree differs from it."""
    commit = run("git", "rev-parse", "--short=12", "HEAD").strip()
    changed = run("git", "status", "--porcelain", "--", *artifacts.SOURCES).strip()
    return f"commit {commit}{', with changes that are not committed' if changed else ''}"


def check(python: Path | str, wheel: Path, work: Path, build: str, has_extras: bool) -> Path:
    """Install and drive one wheel; return the environment's programs."""
    with_what = f"with the extra {EXTRA}" if has_extras else "without extras"
    environment = artifacts.empty(work / "environment")
    programs = install(python, environment, wheel, EXTRA if has_extras else "")
    with tempfile.TemporaryDirectory(prefix="warren-release-") as directory:
        drive(programs, Path(directory), warrenmq.__version__, build, has_extras)
    say(f"{wheel.name} {with_what}: installed and driven, {build}")
    return programs


def release(pythons: list[Interpreter], dist: Path, work: Path) -> None:
    """Build, drive and describe everything; raises ReleaseError."""
    artifacts.empty(dist)
    say(f"warren {warrenmq.__version__} of {describe_sources()}")
    source = artifacts.build_source_distribution(work, dist)
    say(f"{source.name}: built")
    wheels: list[tuple[Path | str, Path, str]] = []
    pure = artifacts.build_pure_wheel(source, dist)
    wheels.append((sys.executable, pure, "interpreted"))
    say(f"{pure.name}: built")
    for python in pythons:
        say(f"compiling for {python.name}, which takes minutes")
        wheel = artifacts.build_compiled_wheel(source, python, work, dist)
        wheels.append((python.path, wheel, "compiled"))
        say(f"{wheel.name}: built from {source.name}")
    stem = f"warrenmq-{warrenmq.__version__}"
    components = {False: f"{stem}.cdx.json", True: f"{stem}-{EXTRA}.cdx.json"}
    for path, wheel, build in wheels:
        for has_extras in (False, True):
            try:
                programs = check(path, wheel, work, build, has_extras)
            except NoWheelError as error:
                if not has_extras:
                    raise
                say(f"{wheel.name} with the extra {EXTRA}: skipped, {error}")
                continue
            if wheel == pure:
                artifacts.write_components(
                    programs / "python", warrenmq.__version__, dist / components[has_extras]
                )
                say(f"{components[has_extras]}: written")
    checksums = artifacts.write_checksums(dist)
    say(f"{checksums.name}: written; all files are in {dist}")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.release", description=__doc__)
    parser.add_argument("pythons", nargs="*", default=interpreters.DEFAULT, metavar="PYTHON")
    parser.add_argument("--dist", type=Path, default=ROOT / "dist")
    options = parser.parse_args()
    pythons, skipped = interpreters.find(list(options.pythons))
    for line in skipped:
        say(line)
    try:
        release(pythons, options.dist.resolve(), ROOT / "build" / "release")
    except ReleaseError as error:
        say(f"failed: {error}")
        return 1
    if not pythons:
        say("no wheel has compiled modules: no Python was found")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
