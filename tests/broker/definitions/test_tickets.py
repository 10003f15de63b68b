"""Tickets: who may use one, and until when."""

from warrenmq.broker.definitions.metadata import PutUser
from warrenmq.broker.definitions.passwords import SHA256
from warrenmq.broker.definitions.tickets import JOB_S, LOGIN_S, TICKET_S, Tickets

NOW_S = 1_800_000_000


class Clock:
    """A clock that stands still."""

    def __init__(self) -> None:
        self.now_s = NOW_S

    def __call__(self) -> int:
        return self.now_s


def user(name: bytes = b"u", password_hash: bytes = b"hash") -> PutUser:
    return PutUser(name, password_hash, SHA256, [])


def test_a_ticket_holds_for_its_user_and_password_until_its_end() -> None:
    clock = Clock()
    own = Tickets(bytes, clock)
    ticket = own.issue(user())
    clock.now_s = NOW_S + TICKET_S - 1
    assert own.login_s(ticket, user()) == NOW_S
    for other in (user(b"v"), user(b"u", b"other"), user(b"uh", b"ash"), user(b"u", b"")):
        assert own.login_s(ticket, other) == 0
    clock.now_s = NOW_S + TICKET_S
    assert own.login_s(ticket, user()) == 0


def test_a_ticket_of_a_job_holds_for_days() -> None:
    clock = Clock()
    own = Tickets(bytes, clock)
    ticket = own.issue_for_job(user())
    clock.now_s = NOW_S + JOB_S - 1
    assert own.login_s(ticket, user()) == NOW_S
    clock.now_s = NOW_S + JOB_S
    assert own.login_s(ticket, user()) == 0
    assert own.issue_for_job(user(b"u", b"")) == b""


def test_a_changed_ticket_does_not_hold() -> None:
    own = Tickets(bytes, Clock())
    prefix, login, end, proof = own.issue(user()).split(b":")
    later = b"%d" % (int(end) + 1)
    for fields in (
        (prefix, login, later, proof),
        (prefix, later, end, proof),
        (prefix, login, end, proof[:-1]),
        (prefix, login, b"9" * 12, proof),
        (prefix, b"-1", end, proof),
        (b"other", login, end, proof),
        (b"ticket",),
    ):
        assert own.login_s(b":".join(fields), user()) == 0


def test_tickets_are_exchanged_until_some_hours_after_the_login() -> None:
    clock = Clock()
    own = Tickets(bytes, clock)
    ticket = own.issue(user())
    exchanges = 0
    while ticket:
        last = ticket
        clock.now_s += TICKET_S - 1
        ticket = own.exchange(last, user())
        exchanges += 1
    assert clock.now_s >= NOW_S + LOGIN_S > clock.now_s - TICKET_S
    assert exchanges == LOGIN_S // (TICKET_S - 1) + 1
    assert own.login_s(last, user()) == 0


def test_nodes_with_one_secret_take_each_others_tickets() -> None:
    clock = Clock()
    first, second, stranger = [Tickets(bytes, clock) for _ in range(3)]
    first.share(b"secret")
    second.share(b"secret")
    stranger.share(b"another")
    ticket = first.issue(user())
    assert second.login_s(ticket, user()) == NOW_S
    assert stranger.login_s(ticket, user()) == 0
    # A node that has issued none takes none, and a user without a password gets none.
    assert Tickets(bytes, clock).login_s(ticket, user()) == 0
    assert first.issue(user(b"u", b"")) == b""


def test_tickets_outlive_a_rotation_of_the_secret_until_it_ends() -> None:
    clock = Clock()
    own, late = Tickets(bytes, clock), Tickets(bytes, clock)
    own.share(b"old")
    late.share(b"old")
    ticket = own.issue(user())
    own.share(b"new", b"old")
    assert own.login_s(ticket, user()) == own.login_s(late.issue(user()), user()) == NOW_S
    newer = own.exchange(ticket, user())
    own.share(b"new")
    assert own.login_s(ticket, user()) == 0
    assert own.login_s(newer, user()) == NOW_S
