"""Names as they appear in texts for people."""


def name_text(name: bytes) -> str:
    """Return `name` as text; bytes that are no UTF-8 become replacement characters."""
    return name.decode("utf-8", "replace")
