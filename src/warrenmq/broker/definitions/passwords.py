"""Passwords as RabbitMQ stores them: four random bytes of salt, then a hash over salt and password (protocol.md 10).

The hash is what definitions files carry (in base64), so users move between the brokers with their passwords. Interactive
logins are few and the hash is fast, so nothing here is cached.
"""

import hashlib
import hmac
import secrets
from typing import Final

SHA256: Final = "rabbit_password_hashing_sha256"
SHA512: Final = "rabbit_password_hashing_sha512"
# Only for hashes that come from elsewhere; new ones are SHA-256.
MD5: Final = "rabbit_password_hashing_md5"
HASHING_ALGORITHMS: Final = (SHA256, SHA512, MD5)

SALT_BYTES: Final = 4


def hash_password(password: bytes) -> bytes:
    """A hash to store for `password`, of the algorithm SHA256."""
    return _hash(SHA256, secrets.token_bytes(SALT_BYTES), password)


def is_password(password: bytes, password_hash: bytes, hashing: str) -> bool:
    """Is `password` what `password_hash` was made from? Takes as long for a nearly right one as for a wrong one.

    Never for an empty password, an empty hash or an unknown algorithm.
    """
    if not password or not password_hash or hashing not in HASHING_ALGORITHMS:
        return False
    return hmac.compare_digest(_hash(hashing, password_hash[:SALT_BYTES], password), password_hash)


def _hash(hashing: str, salt: bytes, password: bytes) -> bytes:
    if hashing == SHA512:
        return salt + hashlib.sha512(salt + password).digest()
    if hashing == MD5:
        return salt + hashlib.md5(salt + password, usedforsecurity=False).digest()
    return salt + hashlib.sha256(salt + password).digest()
