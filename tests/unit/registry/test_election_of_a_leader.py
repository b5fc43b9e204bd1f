from __future__ import annotations

from typing import Any

from ottla.registry.election import Identity, choose, read_identity


def member(host: str, *, may_lead: bool = True, leads: bool = False) -> dict[str, Any]:
    return Identity(host, 8081, may_lead).fields(leads=leads)


def chosen(**members: dict[str, Any]) -> str | None:
    return choose(members).get("master")


def test_the_smallest_address_leads_unless_another_one_does_already() -> None:
    assert chosen(a=member("two"), b=member("one")) == "b"
    assert chosen(a=member("two", leads=True), b=member("one")) == "a"
    # Two that think so: neither is believed.
    assert chosen(a=member("two", leads=True), b=member("one", leads=True)) == "b"


def test_who_may_not_lead_does_not() -> None:
    assert chosen(a=member("one", may_lead=False), b=member("two")) == "b"
    assert chosen(a=member("one", may_lead=False)) is None


def test_all_are_told_where_the_leader_is_and_of_addresses_that_are_not_their_own() -> None:
    told = choose({"a": member("one"), "b": member("two")})
    assert (told["error"], read_identity(told["master_identity"]).url) == (0, "http://one:8081")
    assert choose({"a": member("one"), "b": member("one")})["error"] == 1
    assert Identity("::1", 1).url == "http://[::1]:1"


def test_what_confluents_registry_says_of_itself_is_understood() -> None:
    said = {"version": 1, "host": "sr", "port": 8081, "master_eligibility": True, "scheme": "https"}
    assert read_identity(said) == Identity("sr", 8081, True, "https")
