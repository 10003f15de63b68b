"""Builds the source distribution, the wheels from it, their checksums and the list of components.

Every wheel is built from the source distribution, so each compiled one shows that the source
distribution compiles. The tools that build have the versions and hashes of requirements/dev.lock.
"""

import hashlib
import json
import shutil
from pathlib import Path

from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from tools.release.commands import LOCK, PROGRAMS, ROOT, UV, ReleaseError, run
from tools.release.interpreters import Interpreter

# What the source distribution is made of: the sources are copied, because setuptools writes into
# the directory that it builds from.
SOURCES = ("src", "pyproject.toml", "setup.py", "README.md", "LICENSE")
CHECKSUMS = "SHA256SUMS"
COMPONENTS_SCHEMA = SchemaVersion.V1_6


def only(directory: Path, pattern: str) -> Path:
    """The one file in `directory` that `pattern` matches."""
    found = sorted(directory.glob(pattern))
    if len(found) != 1:
        names = ", ".join(path.name for path in found) or "none"
        raise ReleaseError(f"one {pattern} is expected in {directory}; there is: {names}")
    return found[0]


def empty(directory: Path) -> Path:
    """Make `directory` anew."""
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    return directory


def build_source_distribution(work: Path, dist: Path) -> Path:
    """Build `dist`/*.tar.gz from the working tree."""
    tree = empty(work / "tree")
    for name in SOURCES:
        if (ROOT / name).is_dir():
            shutil.copytree(
                ROOT / name, tree / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info")
            )
        else:
            shutil.copy2(ROOT / name, tree / name)
    _uv_build("--sdist", "-o", dist, tree)
    return only(dist, "*.tar.gz")


def build_pure_wheel(source: Path, dist: Path) -> Path:
    """Build the wheel without compiled modules, which every Python and machine can install."""
    _uv_build("--wheel", "-o", dist, source, settings={"WARREN_PURE": "1"})
    return only(dist, "*-none-any.whl")


def build_compiled_wheel(source: Path, interpreter: Interpreter, work: Path, dist: Path) -> Path:
    """Build the wheel with compiled modules for `interpreter`.

    Its tag names the oldest C library that it runs with (manylinux), as an index demands.
    """
    built = empty(work / interpreter.tag)
    _uv_build("--wheel", "--python", interpreter.path, "-o", built, source)
    wheel = only(built, "*.whl")
    if f"-{interpreter.tag}-" not in wheel.name:
        # setup.py installs the sources where it cannot compile; a release must not.
        raise ReleaseError(f"{interpreter.name} has compiled nothing: {wheel.name}")
    run(PROGRAMS / "auditwheel", "repair", "--wheel-dir", dist, wheel)
    return only(dist, f"*-{interpreter.tag}-*.whl")


def _uv_build(*arguments: str | Path, settings: dict[str, str] | None = None) -> None:
    run(
        UV, "build", "--no-config", "--system-certs", "--build-constraints", LOCK,
        "--require-hashes", "--no-create-gitignore", *arguments, settings=settings,
    )  # fmt: skip


def write_components(python: Path, version: str, target: Path) -> None:
    """Write what is installed in the environment of `python` as CycloneDX JSON, checked against the
    schema of that format."""
    run(
        PROGRAMS / "cyclonedx-py", "environment", "--pyproject", ROOT / "pyproject.toml",
        "--sv", COMPONENTS_SCHEMA.to_version(), "--output-reproducible", "-o", target, python,
    )  # fmt: skip
    document = json.loads(target.read_text("utf-8"))
    # pyproject.toml leaves the version to the sources, where the tool does not look.
    subject = document["metadata"]["component"]
    subject |= {"version": version, "purl": f"pkg:pypi/{subject['name']}@{version}"}
    text = json.dumps(document, indent=2, sort_keys=True, ensure_ascii=False) + "\n"
    fault = JsonStrictValidator(COMPONENTS_SCHEMA).validate_str(text)
    if fault is not None:
        raise ReleaseError(f"{target.name} is not of the format: {fault}")
    target.write_text(text, "utf-8")


def write_checksums(dist: Path) -> Path:
    """Write SHA256SUMS for all other files in `dist`, in the form that sha256sum --check reads."""
    target = dist / CHECKSUMS
    target.unlink(missing_ok=True)
    lines = [
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n"
        for path in sorted(dist.iterdir())
    ]
    target.write_text("".join(lines))
    return target
