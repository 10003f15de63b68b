"""Passwords as RabbitMQ stores them: 4 random bytes of salt, then a hash (protocol 10).

The hash covers salt and password. Definitions files carry it in base64, so users can move between
RabbitMQ and warren with their passwords. Interactive logins are few and the hash is fast, so this
module caches nothing.
"""

import hashlib
import hmac
import secrets
from typing import Final

SHA256: Final = "rabbit_password_hashing_sha256"
SHA512: Final = "rabbit_password_hashing_sha512"
# MD5 is only for hashes that come from elsewhere; new hashes are SHA-256.
MD5: Final = "rabbit_password_hashing_md5"
HASHING_ALGORITHMS: Final = (SHA256, SHA512, MD5)

SALT_BYTES: Final = 4


def hash_password(password: bytes, hashing: str = SHA256) -> bytes:
    """A hash of `password` to store, made with the algorithm `hashing` and a new salt."""
    return _hash(hashing, secrets.token_bytes(SALT_BYTES), password)


def is_password(password: bytes, password_hash: bytes, hashing: str) -> bool:
    """Whether `password_hash` was made from `password`, compared in constant time.

    False for an empty password, an empty hash or an unknown algorithm.
    """
    if not password_hash or hashing not in HASHING_ALGORITHMS:
        # Hash all the same: the time of a refusal must not tell which users have a password.
        _hash(SHA256, bytes(SALT_BYTES), password)
        return False
    found = _hash(hashing, password_hash[:SALT_BYTES], password)
    return hmac.compare_digest(found, password_hash) and len(password) > 0


def _hash(hashing: str, salt: bytes, password: bytes) -> bytes:
    if hashing == SHA512:
        return salt + hashlib.sha512(salt + password).digest()
    if hashing == MD5:
        return salt + hashlib.md5(salt + password, usedforsecurity=False).digest()
    return salt + hashlib.sha256(salt + password).digest()
