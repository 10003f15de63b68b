"""The error of a configuration that cannot be honoured."""


class ConfigError(Exception):
    """A setting that cannot be honoured; the text says in one line for the user where and why."""
