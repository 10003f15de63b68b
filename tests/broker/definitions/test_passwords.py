"""Password hashes have RabbitMQ's format; blank passwords and broken hashes never match."""

import base64
import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warrenmq.broker.definitions.passwords import (
    HASHING_ALGORITHMS,
    MD5,
    SHA256,
    SHA512,
    hash_password,
    is_password,
)


@given(st.binary(min_size=1, max_size=80), st.binary(max_size=80))
def test_password_opens_its_own_hash_only(password: bytes, other: bytes) -> None:
    """A password matches its own hash, no other password's and no other algorithm's."""
    stored = hash_password(password)
    assert is_password(password, stored, SHA256)
    assert is_password(other, stored, SHA256) == (other == password)
    assert not is_password(password, stored, SHA512)


def test_hash_of_the_rabbitmq_documentation() -> None:
    """The example of RabbitMQ's documentation matches: salt 908D C60A, password test12."""
    stored = base64.b64decode("kI3GCqW5JLMJa4iX1lo7X4D6XbYqlLgxIs30+P6tENUV2POR")
    assert stored[:4] == bytes.fromhex("908DC60A")
    assert is_password(b"test12", stored, SHA256)
    assert not is_password(b"test13", stored, SHA256)


@pytest.mark.parametrize(
    ("hashing", "name"), [(SHA256, "sha256"), (SHA512, "sha512"), (MD5, "md5")]
)
def test_every_algorithm_verifies(hashing: str, name: str) -> None:
    """Every algorithm verifies a hash of the form salt, then the digest of salt and password."""
    salt = b"\x00\x01\xfe\xff"
    stored = salt + hashlib.new(name, salt + "p\u00e4ss".encode()).digest()
    assert is_password("p\u00e4ss".encode(), stored, hashing)
    for damaged in (stored[:-1], stored + b"\0", stored[:4], b"\1" + stored[1:]):
        assert not is_password("p\u00e4ss".encode(), damaged, hashing)


@pytest.mark.parametrize(
    ("password", "hashing", "stored"),
    [
        ("secret-sha256", SHA256, "IDJdS5moyuSbFm5ZRx1B/snSi5raSre5f0i7VW0lnErH0y+9"),
        (
            "secret-sha512",
            SHA512,
            "L4DQkyh3jxUUffKa2D+0Ctt2gZ6SMSJX1XXhwe5w0p+B1hbXMMdcnlVRq/seH9fhK0TKZ3TJzdYM+qtvr4xiwn9mYy8=",
        ),
        ("secret-md5", MD5, "lAMvoZUQMPvgXUf9Mb9N1C/n9jc="),
        ("p\u00e4ssw\u00f6rd", SHA256, "W0DXnKoUxKSKZkSpVEOdF6Tky8cvLpFI2eOB4I9vOwWvSGrY"),
    ],
)
def test_hashes_recorded_from_rabbitmq(password: str, hashing: str, stored: str) -> None:
    """Hashes that RabbitMQ 3.10.8 has made match their passwords only."""
    assert is_password(password.encode(), base64.b64decode(stored), hashing)
    assert not is_password(password.encode() + b"x", base64.b64decode(stored), hashing)


@pytest.mark.parametrize("hashing", [*HASHING_ALGORITHMS, "rabbit_password_hashing_none", ""])
def test_what_never_opens(hashing: str) -> None:
    """A blank password, an empty hash and an unknown algorithm never match."""
    assert not is_password(b"", hash_password(b"x")[:4] + hashlib.sha256(b"").digest(), hashing)
    assert not is_password(b"x", b"", hashing)
    assert not is_password(b"", b"", hashing)
    assert hashing in HASHING_ALGORITHMS or not is_password(b"x", hash_password(b"x"), hashing)


def test_salt_is_random() -> None:
    """Hashes of one password differ, so that equal passwords of two users do not show."""
    assert len({hash_password(b"x") for _ in range(8)}) == 8
    assert len(hash_password(b"x")) == 36
