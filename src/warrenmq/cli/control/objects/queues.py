"""Queues: purge, delete, pause and resume them."""

from typing import Final

from warrenmq.admin.protocol.control import (
    Counted,
    DeleteQueue,
    PauseQueue,
    PurgeQueue,
    ResumeQueue,
)
from warrenmq.cli.control.command import Command, Run
from warrenmq.cli.control.exits import USAGE, CommandError
from warrenmq.cli.control.formats.output import Output, Text
from warrenmq.cli.control.link import Refused
from warrenmq.cli.control.parsing import Option
from warrenmq.vocabulary.error_codes import NO_SUCH_VHOST, NOT_FOUND, PRECONDITION

GROUP: Final = "Queues"


def _purge(run: Run) -> Output:
    try:
        run.ask(PurgeQueue(vhost=run.vhost, queue=run[0].encode()), Counted)
    except Refused as error:
        if error.refusal in (NOT_FOUND, NO_SUCH_VHOST):
            raise CommandError("Error:\nnot_found") from None
        raise
    return None


def _delete(run: Run) -> Output:
    request = DeleteQueue(
        vhost=run.vhost,
        queue=run[0].encode(),
        if_empty=run.flag("if-empty"),
        if_unused=run.flag("if-unused"),
    )
    try:
        count = run.ask(request, Counted).count
    except Refused as error:
        if error.refusal in (NOT_FOUND, NO_SUCH_VHOST):
            raise CommandError("Error:\nQueue not found", USAGE) from None
        if error.refusal == PRECONDITION:
            what = "in use" if error.reason.endswith("in use") else "not empty"
            raise CommandError(f"Error:\nQueue is {what}", USAGE) from None
        raise
    return Text(f"Queue was successfully deleted with {count} ready messages")


def _pause(run: Run) -> Output:
    return _change(run, PauseQueue(vhost=run.vhost, queue=run[0].encode()))


def _resume(run: Run) -> Output:
    return _change(run, ResumeQueue(vhost=run.vhost, queue=run[0].encode()))


def _change(run: Run, request: PauseQueue | ResumeQueue) -> Output:
    try:
        run.do(request)
    except Refused as error:
        if error.refusal in (NOT_FOUND, NO_SUCH_VHOST):
            raise CommandError("Error:\nnot_found") from None
        raise
    return None


def _delete_banner(run: Run) -> str:
    conditions = [word for word in ("empty", "unused") if run.flag(f"if-{word}")]
    only_if = f" if queue is {' and '.join(conditions)}" if conditions else ""
    return f"Deleting queue '{run[0]}' on vhost '{run.vhost}'{only_if} ..."


COMMANDS: Final = (
    Command(
        "delete_queue", GROUP, "Deletes a queue and its messages", _delete, "<queue_name>", (1, 1),
        options=(
            Option("if-empty", "flag", "e", "only a queue without ready messages"),
            Option("if-unused", "flag", "u", "only a queue without consumers"),
        ),
        takes_vhost=True, takes_timeout=True, banner=_delete_banner,
    ),
    Command(
        "pause_queue", GROUP, "Stops the deliveries of a queue", _pause, "<queue>", (1, 1),
        takes_vhost=True, takes_timeout=True,
        banner=lambda run: f"Pausing queue '{run[0]}' in vhost '{run.vhost}' ...",
    ),
    Command(
        "purge_queue", GROUP, "Drops all ready messages of a queue", _purge, "<queue>", (1, 1),
        takes_vhost=True, takes_timeout=True,
        banner=lambda run: f"Purging queue '{run[0]}' in vhost '{run.vhost}' ...",
    ),
    Command(
        "resume_queue", GROUP, "Resumes the deliveries of a paused queue", _resume, "<queue>", (1, 1),
        takes_vhost=True, takes_timeout=True,
        banner=lambda run: f"Resuming queue '{run[0]}' in vhost '{run.vhost}' ...",
    ),
)  # fmt: skip
