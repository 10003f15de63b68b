"""Our encoder writes the bytes in golden/, which pika's once wrote; both decoders read them.
The files are never regenerated. A line is added for each new method and for bytes that once went
wrong.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.wire.strategies import METHOD_SPECS, build
from tools.generate_wire import MethodSpec
from warrenmq.wire import methods
from warrenmq.wire.encode import write_method_frame
from warrenmq.wire.field_table import decode_table, encode_table, fields_from_python, to_python
from warrenmq.wire.methods import decode_method
from warrenmq.wire.properties import Properties, decode_properties

pika_spec = pytest.importorskip("pika.spec")
writer = pytest.importorskip("librt.strings").BytesWriter

GOLDEN = Path(__file__).parent / "golden"
SPEC_BY_NAME = {f"{spec.class_name}.{spec.name}": spec for spec in METHOD_SPECS}
PIKA_NAMES = {
    "failing_class_id": "class_id",
    "failing_method_id": "method_id",
    "global_": "global_qos",
}


def load(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (GOLDEN / name).read_text().splitlines()]


def wire_value(value: object) -> object:
    """A value of the golden file as our classes hold it: texts are bytes, tables are raw."""
    if isinstance(value, dict):
        return encode_table(fields_from_python(value))
    return value.encode() if isinstance(value, str) else value


def python_value(kind: str, value: Any) -> object:
    if kind == "table":
        return to_python(decode_table(value))
    return value.decode() if isinstance(value, bytes) else value


def pika_value(value: object) -> object:
    return value.decode() if isinstance(value, bytes) else value


def pika_class(spec: MethodSpec) -> Any:
    name = "".join(part.capitalize() for part in spec.name.split("-"))
    return getattr(getattr(pika_spec, spec.class_name.capitalize()), name)


def pika_instance(spec: MethodSpec) -> Any:
    # Some of pika's classes have arguments without defaults; `decode` fills them all.
    return object.__new__(pika_class(spec))


@pytest.mark.parametrize("golden", load("methods.jsonl"), ids=lambda golden: golden["method"])
def test_method_frame_is_pikas(golden: dict[str, Any]) -> None:
    """The same arguments give the same bytes, in both directions."""
    spec = SPEC_BY_NAME[golden["method"]]
    frame = bytes.fromhex(golden["frame"])
    out = writer()
    write_method_frame(
        out, 1, build(spec, {name: wire_value(v) for name, v in golden["arguments"].items()})
    )
    assert out.getvalue() == frame

    decoded = decode_method(frame, 7, len(frame) - 1)
    assert type(decoded) is getattr(methods, spec.python_class)
    ours = {
        argument.name: python_value(argument.type, getattr(decoded, argument.name))
        for argument in spec.live
    }
    assert ours == golden["arguments"]

    if golden["method"] == "connection.update-secret":
        return  # pika only sends this one; its decoder stores the secret under another name
    pikas = pika_instance(spec).decode(frame[11:-1])
    for name, value in golden["arguments"].items():
        assert pika_value(getattr(pikas, PIKA_NAMES.get(name, name))) == value


def test_every_method_has_a_golden_frame_and_pikas_id() -> None:
    """The ids come from pika's own generated specification."""
    golden = {line["method"] for line in load("methods.jsonl")}
    assert golden == set(SPEC_BY_NAME)
    for spec in METHOD_SPECS:
        assert spec.id == pika_class(spec).INDEX
        assert bool(pika_spec.has_content(spec.id)) == spec.content


@pytest.mark.parametrize(
    "golden", load("properties.jsonl"), ids=lambda golden: "+".join(golden["properties"])
)
def test_properties_block_is_pikas(golden: dict[str, Any]) -> None:
    """The same properties give the same bytes, in both directions."""
    block = bytes.fromhex(golden["block"])
    values: dict[str, Any] = {
        name: wire_value(value) for name, value in golden["properties"].items()
    }
    assert Properties(**values).encode() == block
    decoded = decode_properties(block)
    for name, value in values.items():
        assert getattr(decoded, name) == value
    pikas = pika_spec.BasicProperties().decode(block)
    for name, value in golden["properties"].items():
        assert pika_value(getattr(pikas, name)) == value
