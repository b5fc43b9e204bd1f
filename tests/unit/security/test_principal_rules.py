"""Names in certificates, and what rules make of them. The cases are those of Apache Kafka's documentation."""

from __future__ import annotations

import pytest

from ottla.config import ConfigError
from ottla.security.principal_rules import PrincipalRules, distinguished_name
from ottla.security.tls import openssl_name

DUKE = "CN=Duke,OU=ServiceUsers,O=Org,C=US"


def test_the_last_part_of_a_subject_stands_first_as_java_writes_it() -> None:
    subject = (
        (("countryName", "US"),),
        (("organizationName", "Org, Inc."),),
        (("organizationalUnitName", "ServiceUsers"), ("userId", "7")),
        (("emailAddress", "a@b.c"),),
        (("commonName", "Duke"),),
    )
    assert distinguished_name(subject) == (
        r"CN=Duke,1.2.840.113549.1.9.1=#16056140622e63,OU=ServiceUsers+UID=7,O=Org\, Inc.,C=US"
    )
    assert PrincipalRules("DEFAULT").principal({"subject": ((("commonName", " #x"),),)}) == r"User:CN=\ #x"


@pytest.mark.parametrize(
    ("rules", "name"),
    [
        ("DEFAULT", DUKE),
        ("", DUKE),
        (r"RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/", "Duke"),
        (r"RULE:^CN=(.*?),OU=(.*?),O=(.*?),C=(.*?)$/$1@$2/L,DEFAULT", "duke@serviceusers"),
        (r"RULE:^cn=(.*?)$/$1/, RULE:^CN=(.*?),.*$/$1/U", "DUKE"),
        (r"RULE:^CN=(.*?),.*$/$1-$4/", "Duke-$4"),
        # A rule is for whole names.
        (r"RULE:CN=Duke/nobody/,DEFAULT", DUKE),
        (r"RULE:^CN=(\w*),.*$/a\/$1/", r"a\/Duke"),
    ],
)
def test_the_first_rule_that_fits_names_the_principal(rules: str, name: str) -> None:
    assert PrincipalRules(rules).name(DUKE) == name


def test_who_fits_no_rule_has_no_name() -> None:
    with pytest.raises(LookupError, match="CN=Duke"):
        PrincipalRules("RULE:^CN=Nobody$/x/").name(DUKE)


@pytest.mark.parametrize(
    "rules", ["RULE", "RULE:x", "RULE:x/y", "RULE:(/y/", "DEFAULT RULE:x/y/", "RULE:x/y/Q"]
)
def test_what_is_no_rule_is_refused(rules: str) -> None:
    with pytest.raises(ConfigError, match=r"ssl\.principal\.mapping\.rules"):
        PrincipalRules(rules)


@pytest.mark.parametrize(
    ("java", "openssl"),
    [
        ("TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", "ECDHE-RSA-AES256-GCM-SHA384"),
        ("TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256", "ECDHE-ECDSA-CHACHA20-POLY1305"),
        ("TLS_RSA_WITH_AES_128_CBC_SHA", "AES128-SHA"),
        ("ECDHE-RSA-AES128-GCM-SHA256", "ECDHE-RSA-AES128-GCM-SHA256"),
    ],
)
def test_cipher_suites_go_by_javas_names_too(java: str, openssl: str) -> None:
    assert openssl_name(java) == openssl
