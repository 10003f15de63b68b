"""Hypothesis strategies for all that the codec reads and writes, from the specification file."""

from typing import cast

from hypothesis import strategies as st

from tools.generate_wire import SPEC, Argument, MethodSpec, load_spec
from warrenmq.wire import methods
from warrenmq.wire.field_table import Field, encode_table
from warrenmq.wire.field_types import (
    TAG_ARRAY,
    TAG_BINARY,
    TAG_BOOL,
    TAG_BYTE,
    TAG_DECIMAL,
    TAG_DOUBLE,
    TAG_FLOAT,
    TAG_LONG,
    TAG_LONG_TOO,
    TAG_LONGSTR,
    TAG_SHORT,
    TAG_SIGNED_INT,
    TAG_TABLE,
    TAG_TIMESTAMP,
    TAG_UNSIGNED_BYTE,
    TAG_UNSIGNED_INT,
    TAG_UNSIGNED_SHORT,
    TAG_VOID,
)
from warrenmq.wire.method import Method
from warrenmq.wire.properties import Properties

METHOD_SPECS = load_spec(SPEC)

octets = st.integers(0, 0xFF)
shortstrs = st.binary(max_size=255)
utf8_shortstrs = st.text(st.characters(exclude_categories=["Cs"]), max_size=60).map(
    lambda text: text.encode()
)


def _integers(tag: int, bits: int, signed: bool) -> st.SearchStrategy[Field]:
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    return st.integers(low, high).map(lambda value: Field(tag, value))


def _names() -> st.SearchStrategy[str]:
    # Any bytes make a name; bytes that are not UTF-8 come as surrogates.
    return st.binary(max_size=20).map(lambda raw: raw.decode("utf-8", "surrogateescape"))


def tables(values: st.SearchStrategy[Field]) -> st.SearchStrategy[dict[str, Field]]:
    return st.dictionaries(_names(), values, max_size=5)


_scalar_fields = st.one_of(
    st.booleans().map(lambda value: Field(TAG_BOOL, value)),
    _integers(TAG_BYTE, 8, signed=True),
    _integers(TAG_UNSIGNED_BYTE, 8, signed=False),
    _integers(TAG_SHORT, 16, signed=True),
    _integers(TAG_UNSIGNED_SHORT, 16, signed=False),
    _integers(TAG_SIGNED_INT, 32, signed=True),
    _integers(TAG_UNSIGNED_INT, 32, signed=False),
    _integers(TAG_LONG, 64, signed=True),
    _integers(TAG_LONG_TOO, 64, signed=True),
    _integers(TAG_TIMESTAMP, 64, signed=False),
    st.floats(width=32, allow_nan=False).map(lambda value: Field(TAG_FLOAT, value)),
    st.floats(allow_nan=False).map(lambda value: Field(TAG_DOUBLE, value)),
    st.tuples(octets, st.integers(0, 0xFFFFFFFF)).map(lambda value: Field(TAG_DECIMAL, value)),
    st.binary(max_size=300).map(lambda value: Field(TAG_LONGSTR, value)),
    st.binary(max_size=20).map(lambda value: Field(TAG_BINARY, value)),
    st.just(Field(TAG_VOID, None)),
)

fields = st.recursive(
    _scalar_fields,
    lambda inner: st.one_of(
        st.lists(inner, max_size=5).map(lambda value: Field(TAG_ARRAY, value)),
        tables(inner).map(lambda value: Field(TAG_TABLE, value)),
    ),
    max_leaves=20,
)

field_tables = tables(fields)
raw_tables = field_tables.map(encode_table)


def argument_values(argument: Argument, content: bool) -> st.SearchStrategy[object]:
    values: dict[str, st.SearchStrategy[object]] = {
        "bit": st.booleans(),
        "octet": octets,
        "short": st.integers(0, 0xFFFF),
        "long": st.integers(0, 0xFFFFFFFF),
        "longlong": st.integers(-(1 << 63), (1 << 63) - 1),
        "shortstr": shortstrs if content else utf8_shortstrs,
        "longstr": st.binary(max_size=300),
        "table": raw_tables,
    }
    return values[argument.type]


def build(spec: MethodSpec, values: dict[str, object]) -> Method:
    """The method object of `spec` with the arguments `values`."""
    return cast(Method, getattr(methods, spec.python_class)(**values))


def arguments_of(spec: MethodSpec, method: Method) -> dict[str, object]:
    """The arguments of a method by name; the reverse of `build`."""
    return {argument.name: getattr(method, argument.name) for argument in spec.live}


@st.composite
def methods_with_values(draw: st.DrawFn) -> tuple[MethodSpec, dict[str, object]]:
    spec = draw(st.sampled_from(METHOD_SPECS))
    return spec, {a.name: draw(argument_values(a, spec.content)) for a in spec.live}


def _optional(values: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes | None]:
    return st.none() | values


properties = st.builds(
    Properties,
    content_type=_optional(shortstrs),
    content_encoding=_optional(shortstrs),
    headers=_optional(raw_tables),
    delivery_mode=st.none() | octets,
    priority=st.none() | octets,
    correlation_id=_optional(shortstrs),
    reply_to=_optional(shortstrs),
    expiration=_optional(shortstrs),
    message_id=_optional(shortstrs),
    timestamp=st.none() | st.integers(0, (1 << 64) - 1),
    type=_optional(shortstrs),
    user_id=_optional(shortstrs),
    app_id=_optional(shortstrs),
    cluster_id=_optional(shortstrs),
)
