"""Parameters in arguments of the Erlang machine, as RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS has them.

    -rabbit consumer_timeout 36000000 -rabbitmq_management load_definitions '"/etc/d.json"'

An argument that sets no parameter of RabbitMQ concerns Erlang alone, and is named in a warning.
"""

import shlex

from warrenmq.server.config.erlang.classic import NoKeyError, parameter_settings
from warrenmq.server.config.erlang.terms import ErlangSyntaxError, parse_term
from warrenmq.server.config.errors import ConfigError
from warrenmq.server.config.setting import Setting


def argument_settings(
    variable: str, text: str, errors: list[str], warnings: list[str]
) -> list[Setting]:
    """The settings in `text`, the value of `variable`; faults go to `errors`."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        errors.append(f"{variable}: {error}")
        return []
    settings: list[Setting] = []
    without_key: list[str] = []
    while words:
        flag = words.pop(0)
        values = []
        while words and not _is_flag(words[0]):
            values.append(words.pop(0))
        application = flag.removeprefix("-")
        if not application.startswith("rabbit") or len(values) != 2:
            without_key.append(flag)
            continue
        try:
            term = parse_term(values[1])
            settings += parameter_settings(variable, application, values[0], term)
        except NoKeyError:
            without_key.append(f"{flag} {values[0]}")
        except (ErlangSyntaxError, ConfigError) as error:
            errors.append(f"{variable}: {flag} {values[0]}: {error}")
    if without_key:
        warnings.append(f"{variable}: these arguments have no effect: {', '.join(without_key)}")
    return settings


def _is_flag(word: str) -> bool:
    return word[:1] in ("-", "+") and not word[1:2].isdecimal()
