"""The forms of a page, as a browser fills and sends them."""

from dataclasses import dataclass, field
from html.parser import HTMLParser


@dataclass
class Form:
    """A form that is sent to `action` by POST, with its values; `alert`: why it was refused."""

    action: str
    values: dict[str, list[str]] = field(default_factory=dict)
    alert: str = ""


class _Reader(HTMLParser):
    """Collects the forms of a document."""

    def __init__(self) -> None:
        super().__init__()
        self.forms: list[Form] = []
        self._form: Form | None = None
        self._select = ""
        # Where text goes: to the alert of the form, or to the area of this name.
        self._text_of = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        has = {name: value or "" for name, value in attrs}
        if tag == "form" and has.get("method") == "post":
            self._form = Form(has["action"])
            self.forms.append(self._form)
        if self._form is None:
            return
        name = has.get("name", "")
        if tag == "input" and (has.get("type") != "checkbox" or "checked" in has):
            self._form.values.setdefault(name, []).append(has.get("value", ""))
        elif tag == "textarea":
            self._form.values[name] = [""]
            self._text_of = name
        elif tag == "select":
            self._select = name
        elif tag == "option" and ("selected" in has or self._select not in self._form.values):
            self._form.values[self._select] = [has.get("value", "")]
        elif has.get("role") == "alert":
            self._text_of = "alert"

    def handle_endtag(self, tag: str) -> None:
        if tag == "form":
            self._form = None
        elif tag in ("textarea", "p"):
            self._text_of = ""

    def handle_data(self, data: str) -> None:
        if self._form is None or not self._text_of:
            return
        if self._text_of == "alert":
            self._form.alert += data
        else:
            self._form.values[self._text_of][0] += data


def forms_of(document: str) -> list[Form]:
    """The forms of a document that are sent by POST."""
    reader = _Reader()
    reader.feed(document)
    return reader.forms


def form_for(document: str, path: str) -> Form:
    """The form that is sent to `path`."""
    return next(form for form in forms_of(document) if form.action.partition("?")[0] == path)
