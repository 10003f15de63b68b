"""Completion scripts for shells, made of the table of commands. They run no command."""

from collections.abc import Iterable

from warrenmq.cli.control.command import Command
from warrenmq.cli.control.parsing import GENERAL, Option


def _words(command: Command) -> list[str]:
    """The words that may follow the command's name."""
    options = [*command.options, *GENERAL]
    return [*[f"--{option.name}" for option in options], *sorted(command.columns)]


def bash(commands: Iterable[Command]) -> str:
    """A script for `source <(warrenctl completion bash)`."""
    known = list(commands)
    cases = "\n".join([f'    {each.name}) words="{" ".join(_words(each))}" ;;' for each in known])
    return f"""\
_warrenctl() {{
  local word command="" words
  for word in "${{COMP_WORDS[@]:1:COMP_CWORD-1}}"; do
    case "$word" in
      -*) ;;
      *) command="$word"; break ;;
    esac
  done
  case "$command" in
    "") words="{" ".join([each.name for each in known])}" ;;
{cases}
    *) words="" ;;
  esac
  COMPREPLY=($(compgen -W "$words" -- "${{COMP_WORDS[COMP_CWORD]}}"))
}}
complete -o default -F _warrenctl warrenctl"""


def zsh(commands: Iterable[Command]) -> str:
    """A script for `source <(warrenctl completion zsh)`; it uses the one for bash."""
    return f"autoload -U +X bashcompinit && bashcompinit\n{bash(commands)}"


def fish(commands: Iterable[Command]) -> str:
    """A script for `warrenctl completion fish | source`."""
    known = list(commands)
    names = " ".join([each.name for each in known])
    lines = [f'complete -c warrenctl -f -n "not __fish_seen_subcommand_from {names}" -a "{names}"']
    lines += [_fish_option(option) for option in GENERAL]
    for command in known:
        condition = f'-n "__fish_seen_subcommand_from {command.name}"'
        lines += [_fish_option(option, condition) for option in command.options]
        if command.columns:
            columns = " ".join(sorted(command.columns))
            lines.append(f'complete -c warrenctl {condition} -a "{columns}"')
    return "\n".join(lines)


def _fish_option(option: Option, condition: str = "") -> str:
    short = f" -s {option.short}" if option.short else ""
    value = "" if option.kind == "flag" else " -r"
    return f'complete -c warrenctl {condition} -l {option.name}{short}{value} -d "{option.help}"'
