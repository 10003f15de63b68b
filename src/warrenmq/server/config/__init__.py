"""The node's configuration: rabbitmq.conf's keys, the environment, `--set`, the command's flags.

`settings.py` holds the outcome, the frozen dataclass `Config`; `load.py` makes one from all
sources. Every source goes through the same table of keys, so one place parses and checks a value,
wherever it came from. A key that warren does not know stops the start with one line that names the
file and the line, because a setting that is silently ignored is found out on the worst day.
"""
