"""When certificates expire, read from the certificates themselves.

Nothing is verified: who signed a certificate says nothing about its date. Python's `ssl` shows the
date of a verified certificate only, so the few fields before it are skipped here (RFC 5280, 4.1).
"""

import re
import ssl
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final

from warrenmq.admin.protocol.watching import ListenerCertificates

_PEM: Final = re.compile("-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL)
_VERSION_TAG: Final = 0xA0
_UTC_TIME_TAG: Final = 0x17
# Two digits of a year from here on belong to the last century.
_CENTURY_FROM: Final = 50
_DAY_S: Final = 86_400


def expirations(pem: str) -> list[datetime]:
    """When each of the certificates in `pem` expires, in their order."""
    return [_expiration(ssl.PEM_cert_to_DER_cert(found)) for found in _PEM.findall(pem)]


def expiring(listeners: list[ListenerCertificates], days: int) -> list[str]:
    """One line for each certificate of a listener, or trusted by it, that expires in `days`."""
    now = datetime.now(UTC)
    found = []
    for listener in listeners:
        host = listener.interface or "::"
        where = f"[{host}]:{listener.port}" if ":" in host else f"{host}:{listener.port}"
        for kind, pem in (
            ("certificate", listener.certificate),
            ("trusted certificate", listener.trusted),
        ):
            found += [
                f"{where}: {kind} expires {in_words(ends)}"
                for ends in expirations(pem)
                if (ends - now).total_seconds() <= days * _DAY_S
            ]
    return found


def in_words(ends: datetime) -> str:
    """A date with the days until then, or since then."""
    left_s = (ends - datetime.now(UTC)).total_seconds()
    days = int(abs(left_s) // _DAY_S)
    distance = f"in {days} days" if left_s >= 0 else f"{days} days ago"
    return f"{ends:%Y-%m-%d %H:%M:%S} UTC, {distance}"


def _expiration(der: bytes) -> datetime:
    """The end of `Validity` in a certificate."""
    fields = list(_elements(der, *_first(der, *_first(der, 0, len(der)))))
    # Serial number, the signature's algorithm and the issuer stand before the validity; a version
    # may stand before them.
    _, begin, end = fields[4 if fields[0][0] == _VERSION_TAG else 3]
    _, (tag, begin, end) = _elements(der, begin, end)
    text = der[begin:end].decode("ascii")
    if tag == _UTC_TIME_TAG:
        text = ("19" if int(text[:2]) >= _CENTURY_FROM else "20") + text
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)


def _first(der: bytes, begin: int, end: int) -> tuple[int, int]:
    """Where the content of the first element in `der[begin:end]` begins and ends."""
    _, begin, end = next(_elements(der, begin, end))
    return begin, end


def _elements(der: bytes, begin: int, end: int) -> Iterator[tuple[int, int, int]]:
    """The elements in `der[begin:end]`: tag, and where the content begins and ends."""
    while begin < end:
        tag, length = der[begin], der[begin + 1]
        begin += 2
        if length & 0x80:
            size = length & 0x7F
            length = int.from_bytes(der[begin : begin + size], "big")
            begin += size
        yield tag, begin, begin + length
        begin += length
