"""Tickets: who may use one, and until when."""

from warrenmq.broker.definitions.tickets import LOGIN_S, TICKET_S, Tickets

NOW_S = 1_800_000_000


def tickets() -> Tickets:
    return Tickets(bytes)


def test_a_ticket_holds_for_its_user_and_password_until_its_end() -> None:
    own = tickets()
    ticket = own.issue(b"u", b"hash", NOW_S, NOW_S)
    assert own.login_of(ticket, b"u", b"hash", NOW_S + TICKET_S - 1) == NOW_S
    assert own.login_of(ticket, b"u", b"hash", NOW_S + TICKET_S) == 0
    assert own.login_of(ticket, b"v", b"hash", NOW_S) == 0
    assert own.login_of(ticket, b"u", b"other", NOW_S) == 0
    assert own.login_of(ticket, b"uh", b"ash", NOW_S) == 0


def test_a_changed_ticket_does_not_hold() -> None:
    own = tickets()
    prefix, login, end, proof = own.issue(b"u", b"hash", NOW_S, NOW_S).split(b":")
    later = b"%d" % (int(end) + 1)
    for fields in (
        (prefix, login, later, proof),
        (prefix, later, end, proof),
        (prefix, login, end, proof[:-1]),
        (prefix, login, b"9" * 12, proof),
        (prefix, b"-1", end, proof),
        (b"other", login, end, proof),
    ):
        assert own.login_of(b":".join(fields), b"u", b"hash", NOW_S) == 0
    assert own.login_of(b"ticket", b"u", b"hash", NOW_S) == 0


def test_tickets_end_some_hours_after_the_login() -> None:
    own = tickets()
    last = own.issue(b"u", b"hash", NOW_S, NOW_S + LOGIN_S - 5)
    assert own.login_of(last, b"u", b"hash", NOW_S + LOGIN_S - 1) == NOW_S
    assert own.login_of(last, b"u", b"hash", NOW_S + LOGIN_S) == 0
    assert own.issue(b"u", b"hash", NOW_S, NOW_S + LOGIN_S) == b""


def test_nodes_with_one_secret_take_each_others_tickets() -> None:
    first, second, stranger = tickets(), Tickets(lambda size: b"x" * size), tickets()
    first.share(b"secret")
    second.share(b"secret")
    stranger.share(b"another")
    ticket = first.issue(b"u", b"hash", NOW_S, NOW_S)
    assert second.login_of(ticket, b"u", b"hash", NOW_S) == NOW_S
    assert stranger.login_of(ticket, b"u", b"hash", NOW_S) == 0
    # A user without a password has none, and a node that has issued none takes none.
    assert first.login_of(ticket, b"u", b"", NOW_S) == 0
    assert tickets().login_of(ticket, b"u", b"hash", NOW_S) == 0
