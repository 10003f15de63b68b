"""The user's name in a client's certificate, for the mechanism EXTERNAL.

The name is spelled as RabbitMQ spells it, because users of that name exist: the distinguished name
in the order of RFC 4514 (the last part first), with RabbitMQ's names of attributes and its escapes.
"""

import ssl
from typing import Any, Final, Literal

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


def peer_name(certificate: dict[str, Any], login_from: LoginFrom) -> bytes:
    """The name in a verified certificate (`SSLObject.getpeercert()`); b"" when there is none.

    Several common names are joined by commas.
    """
    subject: tuple[tuple[tuple[str, str], ...], ...] = certificate.get("subject", ())
    if login_from == "common_name":
        names = [value for part in subject for kind, value in part if kind == "commonName"]
        return ",".join(names).encode()
    return ",".join(
        "+".join(f"{_attribute(kind)}={_escaped(value)}" for kind, value in part)
        for part in reversed(subject)
    ).encode()


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
