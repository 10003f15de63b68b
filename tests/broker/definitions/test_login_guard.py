"""Refused logins make the answers to further ones late, and never hold up anybody else."""

from hypothesis import given
from hypothesis import strategies as st

from warrenmq.broker.definitions.login_guard import (
    FREE_FAILURES,
    LINES_INTERVAL_MS,
    LINES_MAX,
    TABLE_MAX,
    WAIT_MAX_MS,
    LoginGuard,
    source_address,
    wait_after,
)

NOW_MS = 1_700_000_000_000


def fail(guard: LoginGuard, count: int, address: str = "10.0.0.1", user: bytes = b"app") -> int:
    """Let logins be refused at once, one after another; the wait of the last one (ms)."""
    wait_ms = 0
    for _ in range(count):
        wait_ms = guard.on_failure(address, user, NOW_MS)
    return wait_ms


def test_answers_wait_longer_with_each_refused_login_up_to_a_limit() -> None:
    guard = LoginGuard()
    waits = [fail(guard, 1) for _ in range(FREE_FAILURES + 6)]
    assert waits[:FREE_FAILURES] == [0] * FREE_FAILURES
    assert waits[FREE_FAILURES:] == [1000, 2000, 4000, WAIT_MAX_MS, WAIT_MAX_MS, WAIT_MAX_MS]


def test_the_right_password_waits_only_where_it_was_guessed() -> None:
    """Neither another address nor another user of the same address is held up."""
    guard = LoginGuard()
    fail(guard, 100)
    assert guard.on_success("10.0.0.2", b"app", NOW_MS) == 0
    assert guard.on_success("10.0.0.1", b"other", NOW_MS) == 0
    assert guard.on_success("10.0.0.1", b"app", NOW_MS) == WAIT_MAX_MS
    assert guard.on_success("10.0.0.1", b"app", NOW_MS) == 0, "it knows the password"


def test_a_wrong_password_waits_for_what_its_address_and_its_user_did() -> None:
    guard = LoginGuard()
    fail(guard, 100)
    assert fail(guard, 1, user=b"other") == WAIT_MAX_MS
    assert fail(guard, 1, address="10.0.0.2") == WAIT_MAX_MS
    assert fail(guard, 1, address="10.0.0.3", user=b"third") == 0


def test_refused_logins_are_forgotten_with_time() -> None:
    guard = LoginGuard()
    fail(guard, FREE_FAILURES + 3)
    minutes = 0
    while guard.on_failure("10.0.0.1", b"app", NOW_MS + minutes * 60_000) > 0:
        minutes += 1
    assert 0 < minutes < 5
    # A clock that goes back does no harm.
    assert guard.on_failure("10.0.0.1", b"app", NOW_MS - 3_600_000) <= WAIT_MAX_MS


def test_the_tables_do_not_grow_without_bound() -> None:
    """The oldest entry is forgotten first, and one that is guessed at again is no old one."""
    guard = LoginGuard()
    fail(guard, 100, address="10.0.0.1", user=b"app")
    for number in range(TABLE_MAX - 1):
        guard.on_failure(f"10.1.{number >> 8}.{number & 255}", b"user-%d" % number, NOW_MS)
    assert fail(guard, 1) == WAIT_MAX_MS
    for number in range(TABLE_MAX):
        guard.on_failure(f"10.2.{number >> 8}.{number & 255}", b"user-%d" % number, NOW_MS)
    assert fail(guard, 1) == 0


def test_the_log_gets_some_lines_and_then_a_count() -> None:
    guard = LoginGuard()
    logged = [guard.may_log("10.0.0.1", NOW_MS) for _ in range(LINES_MAX + 7)]
    assert logged == [True] * LINES_MAX + [False] * 7
    assert guard.may_log("10.0.0.2", NOW_MS)
    assert guard.summaries(NOW_MS + LINES_INTERVAL_MS - 1) == []
    assert guard.summaries(NOW_MS + LINES_INTERVAL_MS) == [
        "7 more logins from 10.0.0.1 refused within 10 s"
    ]
    assert guard.summaries(NOW_MS + 2 * LINES_INTERVAL_MS) == []
    assert guard.may_log("10.0.0.1", NOW_MS + LINES_INTERVAL_MS)


def test_many_addresses_share_their_lines() -> None:
    guard = LoginGuard()
    logged = sum(guard.may_log(f"10.0.{number >> 8}.{number}", NOW_MS) for number in range(3000))
    assert logged == 1000 + LINES_MAX
    assert guard.summaries(NOW_MS + LINES_INTERVAL_MS) == [
        f"{3000 - logged} more logins from other addresses refused within 10 s"
    ]


@given(st.floats(0, 1e9))
def test_a_wait_ends_before_a_handshake_times_out(failures: float) -> None:
    assert 0 <= wait_after(failures) <= WAIT_MAX_MS < 10_000


def test_the_address_is_that_of_the_client() -> None:
    assert source_address("10.0.0.1:50000 -> 10.0.0.9:5672") == "10.0.0.1"
    assert source_address("[2001:db8::1]:50000 -> [::1]:5672") == "[2001:db8::1]"
    assert source_address("test") == "test"
