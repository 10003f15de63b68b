"""A policy as its form has it: texts that may not be valid yet."""

from dataclasses import dataclass, replace
from typing import Any, Final, Literal

import msgspec
from starlette.datastructures import FormData

from warrenmq.management.ui.pages.policies.keys import (
    BOOLEAN,
    LIST,
    NUMBER,
    STRING,
    type_of,
)

Kind = Literal["user", "operator"]

# The path of the policies of a kind in the API.
API_PATH: Final[dict[Kind, str]] = {"user": "policies", "operator": "operator-policies"}


@dataclass(frozen=True)
class Setting:
    """A key of the definition with its value as text, and the type that the value shall have."""

    key: str
    value: str
    type: str


@dataclass(frozen=True)
class Draft:
    """The fields of the form."""

    kind: Kind
    vhost: str
    name: str = ""
    pattern: str = ""
    apply_to: str = "all"
    priority: str = "0"
    settings: tuple[Setting, ...] = ()

    def with_key(self, key: str) -> "Draft":
        """The draft with one more setting."""
        return replace(self, settings=(*self.settings, Setting(key, "", type_of(key))))

    def body(self) -> dict[str, Any]:
        """The policy as the API takes it. Raises ValueError that names a value of another type."""
        definition: dict[str, Any] = {}
        for each in self.settings:
            if each.key in definition:
                raise ValueError(f"The key {each.key} is there twice.")
            definition[each.key] = _value(each)
        return {
            "pattern": self.pattern,
            "apply-to": self.apply_to,
            "priority": _number(self.priority, "The priority"),
            "definition": definition,
        }


def draft_of_form(fields: FormData) -> Draft:
    """The draft that a browser has sent; settings without a key are left out."""

    def text(name: str, default: str = "") -> str:
        return str(fields.get(name, default))

    columns = [map(str, fields.getlist(name)) for name in ("key", "value", "type")]
    # A browser sends all three of each row.
    settings = zip(*columns, strict=False)
    return Draft(
        "operator" if text("kind") == "operator" else "user",
        text("in_vhost"),
        text("name"),
        text("pattern"),
        text("apply_to", "all"),
        text("priority", "0"),
        tuple([Setting(key.strip(), *rest) for key, *rest in settings if key.strip()]),
    )


def draft_of_policy(kind: Kind, row: dict[str, Any]) -> Draft:
    """The draft of a policy that the API has."""
    return Draft(
        kind,
        row["vhost"],
        row["name"],
        row["pattern"],
        row["apply-to"],
        str(row["priority"]),
        tuple([_setting(key, value) for key, value in row["definition"].items()]),
    )


def _setting(key: str, value: Any) -> Setting:
    if isinstance(value, bool):
        return Setting(key, str(value).lower(), BOOLEAN)
    if isinstance(value, int | float):
        return Setting(key, str(value), NUMBER)
    if isinstance(value, list):
        return Setting(key, ", ".join([str(each) for each in value]), LIST)
    return Setting(key, str(value), STRING)


def _value(setting: Setting) -> Any:
    text = setting.value.strip()
    if setting.type == NUMBER:
        return _number(text, f"The value of {setting.key}")
    if setting.type == BOOLEAN:
        if text not in ("true", "false"):
            raise ValueError(f"The value of {setting.key} is neither true nor false: {text}")
        return text == "true"
    if setting.type == LIST:
        return [each.strip() for each in text.split(",") if each.strip()]
    return setting.value


def _number(text: str, what: str) -> Any:
    try:
        return msgspec.json.decode(text, type=int | float)
    except msgspec.DecodeError:
        raise ValueError(f"{what} is no number: {text}") from None
