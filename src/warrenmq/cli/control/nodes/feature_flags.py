"""RabbitMQ's feature flags: all features that a node has are always enabled."""

from typing import Final

from warrenmq.cli.control.command import Command, Run
from warrenmq.cli.control.exits import USAGE, CommandError, bad_argument
from warrenmq.cli.control.formats.output import Output, Table
from warrenmq.cli.control.objects.listings import check_columns, named_columns
from warrenmq.vocabulary.feature_flags import FEATURE_FLAGS, flag_state

GROUP: Final = "Feature flags"
_COLUMNS: Final = ("desc", "doc_url", "name", "provided_by", "stability", "state")


def _list(run: Run) -> Output:
    columns = named_columns(run.arguments, ("name", "state"))
    rows = [
        {"name": name, "state": flag_state(is_on), "stability": "stable", "provided_by": "warren"}
        for name, is_on in FEATURE_FLAGS.items()
    ]
    return Table(columns, [[row.get(name, "") for name in columns] for row in rows])


def _enable(run: Run) -> Output:
    """Succeed for a feature that the node has, as RabbitMQ does for one that is enabled already."""
    if run[0] != "all" and not FEATURE_FLAGS.get(run[0], False):
        text = f"Error:\nThis feature flag is not supported by node {run.node}"
        raise CommandError(text, USAGE)
    return None


def _check_name(run: Run) -> None:
    if not run[0]:
        raise bad_argument("feature_flag cannot be an empty string.")


def _enable_banner(run: Run) -> str:
    if run[0] == "all":
        return "Enabling all feature flags ..."
    return f'Enabling feature flag "{run[0]}" ...'


COMMANDS: Final = (
    Command(
        "enable_feature_flag", GROUP, "Succeeds for a feature that the node has, and changes nothing",
        _enable, "all | <feature_flag>", (1, 1), banner=_enable_banner, check=_check_name,
    ),
    Command(
        "list_feature_flags", GROUP, "Lists which of RabbitMQ's features the node has", _list,
        "[<column> ...]", (0, None), columns=_COLUMNS, is_table=True, takes_timeout=True,
        needs="nothing", banner=lambda _run: "Listing feature flags ...",
        check=lambda run: check_columns(run, _COLUMNS),
    ),
)  # fmt: skip
