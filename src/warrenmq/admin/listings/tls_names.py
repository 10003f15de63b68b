"""RabbitMQ's names for the parts of a TLS cipher suite, from OpenSSL's name of the suite.

TLS_AES_256_GCM_SHA384         any, aes_256_gcm, aead
ECDHE-RSA-AES128-GCM-SHA256    ecdhe_rsa, aes_128_gcm, aead
ECDHE-ECDSA-CHACHA20-POLY1305  ecdhe_ecdsa, chacha20_poly1305, aead
AES256-SHA                     rsa, aes_256_cbc, sha
"""

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

_SUITE: Final = re.compile(
    r"(?:(?P<exchange>[A-Z]+(?:-[A-Z]+)?)-)?"
    r"(?P<cipher>AES|CAMELLIA|ARIA|CHACHA20)-?(?P<bits>128|256)?"
    r"-?(?P<mode>GCM|CCM-?8|CCM|POLY1305)?(?:-(?P<hash>SHA\d*))?"
)


@dataclass(frozen=True, slots=True)
class TlsNames:
    """The parts of a suite; None where the suite, or one of its parts, is unknown."""

    key_exchange: str | None = None
    cipher: str | None = None
    hash: str | None = None


@lru_cache(64)
def tls_names(suite: str) -> TlsNames:
    """The parts of the suite that OpenSSL calls `suite`; "" for a plain connection."""
    # The names of TLS 1.3 have no key exchange.
    is_newest = suite.startswith("TLS_")
    found = _SUITE.fullmatch(suite.removeprefix("TLS_").replace("_", "-"))
    if found is None:
        return TlsNames()
    exchange, cipher, bits, mode, digest = found.groups()
    parts = [cipher, bits, "CCM_8" if mode in ("CCM8", "CCM-8") else mode or "CBC"]
    return TlsNames(
        "any" if is_newest else (exchange or "RSA").lower().replace("-", "_"),
        "_".join([part for part in parts if part]).lower(),
        "aead" if mode else digest and digest.lower(),
    )
