"""The names in a client's certificate: the user's, for the mechanism EXTERNAL, and the issuer's.

A name is spelled as RabbitMQ spells it, because users of that name exist: the distinguished name
in the order of RFC 4514 (the last part first), with RabbitMQ's names of attributes and its escapes.
"""

import ssl
from datetime import UTC, datetime
from typing import Any, Final, Literal

from warrenmq.broker.connection.peer_certificate import NO_CERTIFICATE, PeerCertificate

# A name as `SSLObject.getpeercert` gives it: parts of pairs of an attribute and its value.
Name = tuple[tuple[tuple[str, str], ...], ...]
LoginFrom = Literal["distinguished_name", "common_name"]

# OpenSSL's long names of the attributes that have a short name; all others are shown by number.
_SHORT_NAMES: Final = {
    "commonName": "CN",
    "surname": "SN",
    "givenName": "GIVENNAME",
    "initials": "INITIALS",
    "generationQualifier": "GENERATIONQUALIFIER",
    "serialNumber": "SERIALNUMBER",
    "pseudonym": "PSEUDONYM",
    "title": "TITLE",
    "countryName": "C",
    "stateOrProvinceName": "ST",
    "localityName": "L",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "domainComponent": "DC",
    "userId": "UID",
    "emailAddress": "EMAILADDRESS",
}
_ESCAPED: Final = frozenset(b'"+,;<>\\')
# Bytes from here on are written in hexadecimal, as are control characters.
_HIGH: Final = 0x7E
# Certificates write times from this year on in another form, which RabbitMQ shows as it is.
_GENERALIZED_FROM: Final = 2050


def peer_name(certificate: dict[str, Any], login_from: LoginFrom) -> bytes:
    """The name in a verified certificate (`SSLObject.getpeercert()`); b"" when there is none.

    Several common names are joined by commas.
    """
    subject: Name = certificate.get("subject", ())
    if login_from == "common_name":
        names = [value for part in subject for kind, value in part if kind == "commonName"]
        return ",".join(names).encode()
    return _distinguished_name(subject).encode()


def peer_certificate(certificate: dict[str, Any], login_from: LoginFrom) -> PeerCertificate:
    """A verified certificate (`SSLObject.getpeercert()`); NO_CERTIFICATE when there is none."""
    if not certificate:
        return NO_CERTIFICATE
    first, last = (_time(certificate[key]) for key in ("notBefore", "notAfter"))
    return PeerCertificate(
        peer_name(certificate, login_from),
        _distinguished_name(certificate["subject"]),
        _distinguished_name(certificate["issuer"]),
        f"{first} - {last}",
    )


def _distinguished_name(name: Name) -> str:
    return ",".join(
        "+".join(f"{_attribute(kind)}={_escaped(value)}" for kind, value in part)
        for part in reversed(name)
    )


def _time(text: str) -> str:
    when = datetime.fromtimestamp(ssl.cert_time_to_seconds(text), UTC)
    if when.year >= _GENERALIZED_FROM:
        return f'{{generalTime,"{when:%Y%m%d%H%M%SZ}"}}'
    return f"{when:%Y-%m-%dT%H:%M:%SZ}"


def _attribute(name: str) -> str:
    """The short name of an attribute, or else its number."""
    if name in _SHORT_NAMES:
        return _SHORT_NAMES[name]
    try:
        return ssl._ASN1Object.fromname(name).oid
    except ValueError:
        return name


def _escaped(value: str) -> str:
    octets = value.encode()
    last = len(octets) - 1
    shown = []
    for at, octet in enumerate(octets):
        character = chr(octet)
        if octet in _ESCAPED or (at == 0 and character in " #") or (at == last and octet == 0x20):
            shown.append(f"\\{character}")
        elif octet < 0x20 or octet >= _HIGH:
            shown.append(f"\\{octet:02X}")
        else:
            shown.append(character)
    return "".join(shown)
