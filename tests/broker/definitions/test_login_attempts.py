"""Logins are counted by protocol, and by source while somebody asks for it."""

from warrenmq.broker.definitions.login_attempts import ADMIN, AMQP, SOURCES_MAX, LoginAttempts


def test_sources_are_counted_only_while_they_are_tracked() -> None:
    attempts = LoginAttempts()
    attempts.count(AMQP, "10.0.0.1", b"app", True)
    attempts.is_tracking = True
    attempts.count(AMQP, "10.0.0.1", b"app", False)
    attempts.count(ADMIN, "10.0.0.1", b"app", True)
    attempts.is_tracking = False
    attempts.count(AMQP, "10.0.0.1", b"app", True)
    counts = {key: (each.succeeded, each.failed) for key, each in attempts.by_protocol.items()}
    assert counts == {AMQP: (2, 1), ADMIN: (1, 0)}
    sources = {key: (each.succeeded, each.failed) for key, each in attempts.by_source.items()}
    assert sources == {
        ("10.0.0.1", b"app", AMQP): (0, 1),
        ("10.0.0.1", b"app", ADMIN): (1, 0),
    }
    attempts.reset()
    assert not attempts.by_protocol
    assert not attempts.by_source


def test_the_number_of_sources_is_bounded() -> None:
    attempts = LoginAttempts()
    attempts.is_tracking = True
    for number in range(SOURCES_MAX + 3):
        attempts.count(AMQP, "10.0.0.1", b"%d" % number, False)
    assert len(attempts.by_source) == SOURCES_MAX
    assert ("10.0.0.1", b"2", AMQP) not in attempts.by_source
    assert attempts.by_protocol[AMQP].failed == SOURCES_MAX + 3
