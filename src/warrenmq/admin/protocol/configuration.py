"""The request of the admin protocol for the configuration that a node has in force."""

from typing import Annotated, Literal

from msgspec import Meta, Struct


class DescribeConfiguration(
    Struct, tag="describe_configuration", forbid_unknown_fields=True, frozen=True, kw_only=True
):
    """The keys of a node with their values and sources. Reply: Configuration.

    `node` is the node that is asked, "": that of the session. Refused (`unreachable`) without a
    link to it. The node reads its files again, and takes nothing from them.
    """

    node: Annotated[str, Meta(max_length=255)] = ""


class PendingValue(Struct, frozen=True):
    """What a key gets, and from where, once `by` happens; the value "" sets nothing."""

    value: str
    source: str
    by: Literal["reload", "restart", "first start"]


class ConfigurationKey(Struct, frozen=True):
    """A key of the configuration.

    `value` is in force: "" if nothing is set, and `(hidden)` for a password that is. `source` is
    `default`, `runtime` (set by a command), FILE:LINE, an environment variable, or a flag of the
    command line. `effect` says when a change takes effect, `section` which one of
    docs/configuration.md explains the key. `is_changed`: it sets something else than the default.
    `pending` is there when the sources as they are now have another value.
    """

    key: str
    value: str
    source: str
    effect: str
    section: str
    is_changed: bool
    pending: PendingValue | None


class Configuration(Struct, tag="configuration", frozen=True):
    """The configuration of `node`: the files that it was read from, and all keys.

    `faults`: why the sources as they are now would be refused, one line each.
    """

    node: str
    files: list[str]
    keys: list[ConfigurationKey]
    faults: list[str]
