"""JSON values in the definition of a policy."""


def is_integer(value: object) -> bool:
    """Whether a JSON value is an integer; `true` is none, though Python thinks so."""
    return isinstance(value, int) and not isinstance(value, bool)


def as_int(value: object) -> int:
    """The value, which `is_integer` has accepted."""
    assert isinstance(value, int)
    return value
