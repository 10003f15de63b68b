"""The keys of TLS that all listeners have, each under a prefix of its own."""

from collections.abc import Iterator
from typing import Final

from warrenmq.server.config.key import RESTART, Key, in_order
from warrenmq.server.config.values import flag, integer, one_of, only, readable, text

TLS_VERSIONS: Final = ("tlsv1", "tlsv1.1", "tlsv1.2", "tlsv1.3")
_no_crl_check: Final = only("false", None, "lists of revoked certificates are not checked")


def tls_keys(prefix: str, field: str, effect: str) -> Iterator[Key]:
    """The keys below `prefix`, which set the `TlsOptions` in a field of `Config`."""
    yield Key(f"{prefix}.cacertfile", f"{field}.cacertfile", readable, effect)
    yield Key(f"{prefix}.certfile", f"{field}.certfile", readable, effect)
    yield Key(f"{prefix}.keyfile", f"{field}.keyfile", readable, effect)
    yield Key(f"{prefix}.password", f"{field}.password", text, effect, is_secret=True)
    verify = one_of("verify_none", "verify_peer")
    yield Key(f"{prefix}.verify", f"{field}.verify", verify, effect)
    yield Key(f"{prefix}.fail_if_no_peer_cert", f"{field}.fail_if_no_peer_cert", flag, effect)
    yield Key(f"{prefix}.depth", f"{field}.depth", integer(0, 255), effect)
    yield Key(f"{prefix}.crl_check", "", _no_crl_check, RESTART)
    version = one_of(*TLS_VERSIONS)
    yield Key(f"{prefix}.versions.*", f"{field}.versions", version, effect, collect=in_order)
    yield Key(f"{prefix}.ciphers.*", f"{field}.ciphers", text, effect, collect=in_order)
    yield Key(f"{prefix}.honor_cipher_order", f"{field}.honor_cipher_order", flag, effect)
