"""`Setting`: one assignment of a value to a key, and the place where it stands."""


class Setting:
    """`key` = `value` as given at `where`: FILE:LINE, an environment variable, `--set`, a flag.

    `is_alias`: the place is another spelling of the key, so a message need not name the key too.
    `is_literal`: a `$(NAME)` in the value is text, since the value stands in quotes.
    `replaces`: the list, such as `auth_mechanisms`, whose weaker members no longer count.
    """

    __slots__ = ("is_alias", "is_literal", "key", "replaces", "value", "where")

    def __init__(
        self,
        where: str,
        key: str,
        value: str,
        *,
        is_alias: bool = False,
        is_literal: bool = False,
        replaces: str = "",
    ) -> None:
        self.where = where
        self.key = key
        self.value = value
        self.is_alias = is_alias
        self.is_literal = is_literal
        self.replaces = replaces

    def with_value(self, value: str) -> "Setting":
        """This setting with another value."""
        return Setting(
            self.where,
            self.key,
            value,
            is_alias=self.is_alias,
            is_literal=self.is_literal,
            replaces=self.replaces,
        )

    def blame(self, fault: str) -> str:
        """The line that tells the user about `fault` of the value."""
        return f"{self.where}: {fault}" if self.is_alias else f"{self.where}: {self.key}: {fault}"
