"""Configurations from public repositories: warren's verdict, beside RabbitMQ's."""

import re
import subprocess
from pathlib import Path

import pytest

from bench.brokers import rabbitmq_server
from tests.support.rabbitmq.public_files import ACCEPTED, PublicFile, public_files
from warrenmq.server.config.load import Flags, read_sources

FILES = public_files(Path(__file__).with_name("public_configurations.txt"))
# Prints "accepted" or "refused" for each file, by the schemas of RabbitMQ and all its plug-ins.
VERDICTS = r"""
main([Plugins | Files]) ->
    [code:add_patha(Directory) || Directory <- filelib:wildcard(Plugins ++ "/*/ebin")],
    logger:set_primary_config(level, none),
    Schema = cuttlefish_schema:files(filelib:wildcard(Plugins ++ "/*/priv/schema/*.schema")),
    [io:format("~s~n", [verdict(Schema, File, filename:extension(File))]) || File <- Files].

verdict(_, File, ".config") ->
    case file:consult(File) of {ok, [_]} -> "accepted"; _ -> "refused" end;
verdict(Schema, File, _) ->
    case cuttlefish_conf:files([File]) of
        {errorlist, _} -> "refused";
        Conf when element(1, Conf) =:= error -> "refused";
        Conf ->
            case cuttlefish_generator:map(Schema, Conf) of
                {error, _, _} -> "refused";
                _ -> "accepted"
            end
    end.
"""


def write(case: PublicFile, directory: Path) -> Path:
    """The file on disk; the files that it names are there."""
    named = directory / "named"
    named.write_text("{}")
    suffix = ".config" if case.name.startswith("classic: ") else ".conf"
    path = directory / f"{FILES.index(case):02}{suffix}"
    path.write_text(case.text.replace("{file}", str(named)))
    return path


@pytest.mark.parametrize("case", FILES, ids=lambda case: case.name)
def test_the_verdict(case: PublicFile, tmp_path: Path) -> None:
    path = write(case, tmp_path)
    errors = read_sources(Flags(path), {}).errors
    assert (errors[0].replace(str(path), "FILE") if errors else ACCEPTED) == case.warren


def test_no_file_that_rabbitmq_refuses_is_taken_without_reason() -> None:
    """A listener may have a host name, which RabbitMQ does not allow."""
    taken = [each.name for each in FILES if each.warren == ACCEPTED and each.rabbitmq != ACCEPTED]
    assert taken == ["a host name"]


@pytest.mark.skipif(rabbitmq_server() is None, reason="rabbitmq-server is not installed")
def test_the_verdicts_of_rabbitmq(tmp_path: Path) -> None:
    script = tmp_path / "verdicts"
    script.write_text("#!/usr/bin/env escript\n" + VERDICTS)
    plugins = next(Path("/usr/lib/rabbitmq/lib").glob("rabbitmq_server-3.*/plugins"))
    done = subprocess.run(
        ["escript", script, plugins, *[write(case, tmp_path) for case in FILES]],
        capture_output=True,
        text=True,
        timeout=60,
        env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)},
        check=True,
    )
    verdicts = [re.sub(r"\W.*", "", case.rabbitmq) for case in FILES]
    assert done.stdout.split() == verdicts
