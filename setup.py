"""Compiles the hot packages with mypyc when the project is installed or its wheel is built.

pyproject.toml has the rest of the build. `src/warrenmq/build.py` is the one list of these packages,
which the build, `warren --version` and the tests share. All their modules form one mypyc group, so
that a call into another module is a C call. Nothing is compiled

* with WARREN_PURE=1,
* for an editable install: the compiled modules would land beside the sources and hide later edits
  of them,
* without a working C compiler or the Python headers: one line says so and the interpreted build is
  installed.

A module in which mypy finds a type error stays interpreted, and a line names it: a later mypy may
know more than the one we lint with, and that must cost speed, not the installation. (`make test`
insists on every module.)

pip and uv show nothing of a build unless it fails, and this one takes minutes. So it says what it
does on the terminal that the command was typed at, when there is one.
"""

import os
import runpy
import signal
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).parent
# Only the options that a compilation needs: strictness belongs to `make lint` and must not stop an
# installation.
MYPY_OPTIONS = [
    "--config-file=",
    "--namespace-packages",
    "--explicit-package-bases",
    "--ignore-missing-imports",
    "--follow-imports=silent",
]
# Hidden symbols let the compiler inline across functions and skip the indirection of a shared
# library: parsing a publish took 65 ns with them and 78 ns without. One C file per module compiles
# on all cores and lost nothing against one file for all; link-time optimisation gained nothing.
COMPILE_FLAGS = ["-fvisibility=hidden", "-fno-semantic-interposition", "-g0"]


# An extension of fewer files than this is compiled in no time.
MANY_FILES = 10


def say(text: str) -> None:
    """Print a line to the output of the build and, past whoever hides that, to the terminal."""
    print(text, file=sys.stderr, flush=True)
    if sys.stderr.isatty():
        return
    # A terminal may stop the processes in its background that write to it; blocked, they write.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTTOU})
    try:
        with open("/dev/tty", "w", encoding="utf-8", errors="replace") as terminal:
            # The installer's own line may stand unfinished before this one.
            terminal.write(f"\r\n{text}\n")
    except OSError:
        pass  # There is no terminal: a service or CI installs.
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def hot_modules() -> list[str]:
    """Paths of the modules to compile, sorted: two builds of one tree then give the same group."""
    build = runpy.run_path(str(ROOT / "src/warrenmq/build.py"))
    paths: list[str] = build["compiled_module_paths"](ROOT / "src" / "warrenmq")
    return [os.path.relpath(path, ROOT) for path in paths]


def c_compiler_failure() -> str | None:
    """The reason why a trivial extension module cannot be compiled and linked here, or None."""
    from setuptools import Distribution

    with tempfile.TemporaryDirectory() as directory:
        source = Path(directory) / "probe.c"
        source.write_text(
            "#include <Python.h>\nPyMODINIT_FUNC PyInit_probe(void) { return NULL; }\n"
        )
        probe = build_ext(Distribution({"ext_modules": [Extension("probe", [str(source)])]}))
        probe.build_lib = probe.build_temp = directory
        silenced = os.dup(2)
        try:
            with open(os.devnull, "w") as devnull:
                os.dup2(devnull.fileno(), 2)
            probe.ensure_finalized()
            probe.run()
        except Exception as error:  # whatever distutils raises, the consequence is the same
            return (
                f"no working C compiler with the Python headers: {str(error).splitlines()[0][:80]}"
            )
        finally:
            os.dup2(silenced, 2)
            os.close(silenced)
    return None


def without_type_errors(modules: list[str]) -> list[str]:
    """The modules of `modules` that mypy accepts.

    Leaving one out can only free others of errors, so the loop ends.
    """
    from mypy import api

    while modules:
        report, _, _ = api.run([*MYPY_OPTIONS, "--cache-dir=build/mypy", *modules])
        errors = {
            line.partition(":")[0]: line for line in report.splitlines() if ": error: " in line
        }
        rejected = [module for module in modules if module in errors]
        for module in rejected:
            say(f"warren: not compiled: {errors[module]}")
        if not rejected:
            break
        modules = [module for module in modules if module not in errors]
    return modules


class ParallelBuildExt(build_ext):
    """Compiles the C files of one extension on all cores.

    setuptools alone can only run whole extensions side by side.
    """

    def build_extensions(self) -> None:
        compiler = self.compiler
        compile_in_order = compiler.compile

        def compile_side_by_side(sources: Sequence[str], *args: Any, **kwargs: Any) -> list[str]:
            # Compile the longest files first, or one core works on such a file alone at the end.
            by_size = sorted(sources, key=os.path.getsize, reverse=True)
            shown_after = {len(by_size) * part // 4 for part in (1, 2, 3, 4)}
            paths: list[str] = []
            with ThreadPoolExecutor(os.cpu_count()) as pool:
                parts = pool.map(
                    lambda source: compile_in_order([source], *args, **kwargs), by_size
                )
                for done, part in enumerate(parts, 1):
                    paths += part
                    if done in shown_after and len(by_size) >= MANY_FILES:
                        say(f"building warren: {done} of {len(by_size)} C files are compiled")
            return paths

        compiler.compile = compile_side_by_side
        super().build_extensions()


def extensions() -> list[Extension]:
    modules = hot_modules()
    reason: str | None
    if os.environ.get("WARREN_PURE") == "1":
        reason = "WARREN_PURE=1"
    elif "editable_wheel" in sys.argv or "develop" in sys.argv:
        reason = "editable install"
    elif not modules:
        reason = "no module to compile"
    else:
        reason = c_compiler_failure()
    if reason is None:
        try:
            from mypyc.build import mypycify
        except ImportError as error:
            reason = str(error)
        else:
            say(
                f"building warren: {len(modules)} modules become C and are compiled, which takes "
                "minutes; WARREN_PURE=1 before the command installs without"
            )
            os.environ["MYPYPATH"] = str(ROOT / "src")
            built = mypycify(
                [*MYPY_OPTIONS, *without_type_errors(modules)],
                opt_level="3",
                debug_level="0",
                multi_file=True,
                group_name="warrenmq",
                target_dir="build/mypyc",
            )
            for extension in built:
                # mypyc gives all extensions the same list.
                extension.extra_compile_args = [*extension.extra_compile_args, *COMPILE_FLAGS]
            return [extension for extension in built if isinstance(extension, Extension)]
    say(f"warren: interpreted build, {reason}")
    return []


# A request for metadata must not cost a compilation.
needs_code = any(
    command in sys.argv for command in ("build", "build_ext", "bdist_wheel", "install")
)
setup(ext_modules=extensions() if needs_code else [], cmdclass={"build_ext": ParallelBuildExt})
