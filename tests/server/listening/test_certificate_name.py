"""Names in certificates are spelled as RabbitMQ 3.10.8 was seen to spell them."""

import pytest

from warrenmq.broker.connection.peer_certificate import NO_CERTIFICATE
from warrenmq.server.listening.certificate_name import peer_certificate, peer_name

Subject = tuple[tuple[tuple[str, str], ...], ...]


@pytest.mark.parametrize(
    ("subject", "expected"),
    [
        ((), b""),
        ((("commonName", "client"),), b"CN=client"),
        ((("commonName", "client"), ("organizationName", "org")), b"O=org,CN=client"),
        ((("domainComponent", "com"), ("userId", "u1"), ("emailAddress", "a@b")),
         b"EMAILADDRESS=a@b,UID=u1,DC=com"),
        ((("surname", "s"), ("givenName", "g"), ("initials", "i"), ("generationQualifier", "q"),
          ("title", "t"), ("serialNumber", "1"), ("pseudonym", "p")),
         b"PSEUDONYM=p,SERIALNUMBER=1,TITLE=t,GENERATIONQUALIFIER=q,INITIALS=i,GIVENNAME=g,SN=s"),
        ((("countryName", "DE"), ("stateOrProvinceName", "Bayern"), ("localityName", "München")),
         b"L=M\\C3\\BCnchen,ST=Bayern,C=DE"),
        ((("streetAddress", "s"), ("description", "d"), ("dnQualifier", "q"), ("1.2.3.4", "x")),
         b"1.2.3.4=x,2.5.4.46=q,2.5.4.13=d,2.5.4.9=s"),
        ((("commonName", 'a"b;c<d>e\\f'), ("organizationalUnitName", "a,b+c")),
         b'OU=a\\,b\\+c,CN=a\\"b\\;c\\<d\\>e\\\\f'),
        ((("commonName", "  two  "),), b"CN=\\  two \\ "),
        ((("commonName", "#x#"),), b"CN=\\#x#"),
        ((("commonName", "c=d\t~{}"),), b"CN=c=d\\09\\7E{}"),
    ],
)  # fmt: skip
def test_distinguished_names(subject: tuple[tuple[str, str], ...], expected: bytes) -> None:
    parts: Subject = tuple((part,) for part in subject)
    assert peer_name({"subject": parts}, "distinguished_name") == expected


def test_several_attributes_in_one_part() -> None:
    subject: Subject = ((("organizationalUnitName", "x"), ("organizationName", "Ö")),)
    assert peer_name({"subject": subject}, "distinguished_name") == b"OU=x+O=\\C3\\96"


def test_common_names() -> None:
    subject: Subject = (
        (("commonName", "one"),),
        (("organizationName", "org"),),
        (("commonName", "zwö,lf"),),
    )
    assert peer_name({"subject": subject}, "common_name") == "one,zwö,lf".encode()
    assert peer_name({}, "common_name") == peer_name({}, "distinguished_name") == b""


def test_names_and_times_of_a_certificate() -> None:
    """Certificates write years from 2050 on in another form, which RabbitMQ shows as it is."""
    certificate = {
        "subject": ((("countryName", "DE"),), (("commonName", "far, away"),)),
        "issuer": ((("commonName", "authority"),),),
        "notBefore": "Nov  5 04:26:36 2026 GMT",
        "notAfter": "Aug 28 04:26:36 2081 GMT",
    }
    shown = peer_certificate(certificate, "common_name")
    assert shown.user_name == b"far, away"
    assert (shown.subject, shown.issuer) == ("CN=far\\, away,C=DE", "CN=authority")
    assert shown.validity == '2026-11-05T04:26:36Z - {generalTime,"20810828042636Z"}'
    assert peer_certificate({}, "common_name") is NO_CERTIFICATE
