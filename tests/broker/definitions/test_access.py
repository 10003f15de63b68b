"""Users of a node: logins, and changes that come in any order."""

import hashlib

import pytest

from warrenmq.broker.definitions.access import Access
from warrenmq.broker.definitions.metadata import (
    DeletePermission,
    DeleteTopicPermission,
    DeleteUser,
    DeleteVhost,
    PutPermission,
    PutTopicPermission,
    PutUser,
    PutVhost,
)
from warrenmq.broker.definitions.passwords import MD5, SHA256, hash_password


@pytest.fixture
def changed() -> list[bytes]:
    """Names of the vhosts whose rights have changed, in order."""
    return []


@pytest.fixture
def access(changed: list[bytes]) -> Access:
    access = Access(frozenset([b"local"]), changed.append)
    for name in (b"app", b"local"):
        access.apply(PutUser(name, hash_password(b"secret"), SHA256, []))
    return access


def test_reasons_of_refused_logins(access: Access) -> None:
    access.apply(PutUser(b"certificate", b"", SHA256, []))
    for name, password, reason in (
        (b"app", b"secret", ""),
        (b"app", b"wrong", "user 'app' - invalid credentials"),
        (b"app", b"", "user 'app' attempted to log in with a blank password"),
        (b"certificate", b"secret", "user 'certificate' - invalid credentials"),
        (b"nobody", b"secret", "user 'nobody' - invalid credentials"),
        (b"local", b"secret", "user 'local' can only connect via localhost"),
        # The reason is not told to somebody who does not know the password.
        (b"local", b"wrong", "user 'local' - invalid credentials"),
    ):
        assert access.password_refusal(name, password, False) == reason
    assert access.password_refusal(b"local", b"secret", True) == ""
    assert access.name_refusal(b"certificate", False) == ""
    assert access.name_refusal(b"nobody", False) == "user 'nobody' - invalid credentials"
    assert access.name_refusal(b"local", False) == "user 'local' can only connect via localhost"


@pytest.mark.parametrize("name", [b"app", b"nobody", b"certificate", b"strange"])
def test_each_refusal_hashes_once(
    access: Access, monkeypatch: pytest.MonkeyPatch, name: bytes
) -> None:
    """The time of a refusal does not tell whether a user exists or has a password."""
    access.apply(PutUser(b"certificate", b"", MD5, []))
    access.apply(PutUser(b"strange", b"1234hash", "an unknown algorithm", []))
    digests: list[bytes] = []
    sha256 = hashlib.sha256

    def counting(data: bytes) -> "hashlib._Hash":
        digests.append(data)
        return sha256(data)

    monkeypatch.setattr(hashlib, "sha256", counting)
    assert access.password_refusal(name, b"wrong", True)
    assert len(digests) == 1


def test_changes_name_the_vhosts_whose_routes_they_concern(
    access: Access, changed: list[bytes]
) -> None:
    for change, vhosts in (
        (PutPermission(b"a", b"app", "", "", ""), [b"a"]),
        (PutPermission(b"b", b"app", "", "", ""), [b"b"]),
        (PutTopicPermission(b"b", b"app", b"x", "", ""), [b"b"]),
        (DeleteTopicPermission(b"b", b"app", b"x"), [b"b"]),
        (PutUser(b"app", b"", SHA256, ["administrator"]), []),
        (PutVhost(b"c", 3), []),
        (DeletePermission(b"a", b"app"), [b"a"]),
        (DeleteUser(b"app"), [b"a", b"b"]),
        (DeleteUser(b"app"), []),
        (PutPermission(b"b", b"local", "", "", ""), [b"b"]),
        (DeleteVhost(b"b"), [b"b"]),
    ):
        changed.clear()
        access.apply(change)
        assert changed == vhosts
    assert list(access.users) == [b"local"]
    assert access.permissions() == []


def test_topic_permissions_wait_for_the_permission(access: Access) -> None:
    """They may be set first, and stay when the permission is cleared, as in RabbitMQ."""
    topic = PutTopicPermission(b"/", b"app", b"x", "^a", "")
    access.apply(topic)
    assert access.rights(b"app", b"/") is None
    for _ in range(2):
        access.apply(PutPermission(b"/", b"app", ".*", ".*", ".*"))
        rights = access.rights(b"app", b"/")
        assert rights is not None
        assert rights.topic_write_refusal(b"x", b"b") != ""
        access.apply(DeletePermission(b"/", b"app"))
        assert access.rights(b"app", b"/") is None
    assert access.topic_exchanges(b"app", b"/") == [b"x"]
    assert access.topic_permissions() == [topic]
    access.apply(DeleteUser(b"app"))
    assert access.topic_permissions() == []
    assert access.topic_exchanges(b"app", b"/") == []
