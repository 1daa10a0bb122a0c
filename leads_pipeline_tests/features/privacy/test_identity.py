"""Whose lead it is: theirs, to look at, or neither, with all reasons."""

import json
import unicodedata
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from leads_pipeline.errors import QuestionError
from leads_pipeline.features.privacy.identity import (
    THEIRS,
    LeadKey,
    Person,
    Version,
    judge,
    read_contact,
    read_version,
)
from leads_pipeline_tests.support.people import EMAIL, PHONE, lead
from leads_pipeline_tests.support.spellings import FORMS_OF_EMAIL, FORMS_OF_PHONE, FULL_WIDTH

# Half of these people were made up by somebody who had never seen the module. `unsure` marks leads
# of which privacy says nothing.
PEOPLE = json.loads(Path(__file__).with_name("people.json").read_text(encoding="utf-8"))


def groups(
    person: Person, *leads: Mapping[str, Any] | str, is_shared: bool = False
) -> dict[str, str]:
    """`theirs` or `look` for each lead that is found, by its id, or by its place if it is a text."""
    versions: dict[LeadKey, list[Version]] = {}
    for number, one in enumerate(leads):
        text = one if isinstance(one, str) else json.dumps(one)
        key = ("applicant", str(number) if isinstance(one, str) else one["id"])
        versions.setdefault(key, []).append(read_version(text))
        assert person.may_be_in(text) or not person.is_shown_by(versions[key][-1])
        assert read_contact(text).contact == versions[key][-1].contact
    judged = judge(person, versions, is_shared=is_shared)
    return {key[1]: "theirs" if reasons & THEIRS else "look" for key, reasons in judged.items()}


@pytest.mark.parametrize(
    "request_", PEOPLE, ids=[f"{number}: {one['about']}" for number, one in enumerate(PEOPLE)]
)
def test_a_person_is_found_and_a_stranger_is_not(request_: dict[str, Any]) -> None:
    asked = request_["ask"]
    leads = request_["leads"]
    versions = {}
    given_ids = []
    for number, one in enumerate(leads):
        key = (one["kind"], str(number))
        versions[key] = [read_version(json.dumps(one["payload"]))]
        if one["payload"].get("id") in asked.get("lead", []):
            given_ids.append(key)
    try:
        person = Person.of(
            asked.get("email", ()),
            asked.get("phone", ()),
            given_ids,
            asked.get("name", ()),
            asked.get("postcode", ()),
        )
    except QuestionError:  # whatever can't be read, finds nobody, and says so
        assert all(one["expect"] == "no" for one in leads)
        return

    judged = judge(person, versions, is_shared=True)

    for key, one in zip(versions, leads, strict=True):
        reasons = judged.get(key, frozenset())
        group = "theirs" if reasons & THEIRS else "look" if reasons else "no"
        assert one.get("unsure") or group == one["expect"], one
        text = json.dumps(one["payload"])
        assert person.may_be_in(text) or not person.is_shown_by(read_version(text))


def test_all_versions_of_a_lead_decide_together() -> None:
    former = lead("1", email=EMAIL, name="Jane Roe")
    now = lead("1", email="other@people.example", name="Jane Smith")
    assert groups(Person.of([EMAIL]), former, now) == {"1": "theirs"}
    assert groups(Person.of(lead_ids=[("applicant", "1")]), now) == {"1": "theirs"}


def test_a_shared_identifier_is_refused_unless_it_may_be_shared() -> None:
    office = [
        lead(str(number), phone=PHONE, email=EMAIL, name=f"Person {'abcdef'[number]}")
        for number in range(4)
    ]
    for person in (Person.of(phones=[PHONE]), Person.of([EMAIL])):
        with pytest.raises(QuestionError, match="4 names") as told:
            groups(person, *office)
        assert EMAIL not in str(told.value)
        assert len(groups(person, *office[:3])) == 3
        assert len(groups(person, *office, is_shared=True)) == 4


def test_repeated_keys_odd_types_and_broken_json_hide_nobody() -> None:
    found = groups(
        Person.of([EMAIL], [PHONE]),
        f'{{"id": "0", "contact": {{"email": "{EMAIL}", "email": "other@people.example"}}}}',
        f'{{"id": "1", "contact": {{"email": ["other@people.example", "{EMAIL}"]}}}}',
        '{"id": "2", "contact": {"phoneNumber": 447700900123}}',
        f'{{"id": "3", "contact": "{EMAIL}"}}',
        '{"id": "4", "contact": {"email": "jane.roe\\u0040people.example\\ud800\\u0000"}}',
        f'{{"id": "5", "{EMAIL}": 1}}',
        f'{{"id": "6", "message": "{EMAIL}", "cut',
        f'{{"id": "7", "n": {"7" * 5_000}, "contact": {{"emailAddress": "{EMAIL}"}}}}',
        f'{{"id": "8", "nested": {"[" * 100_000}"{EMAIL}"',
        '{"id": "9", "message": "call 07700 90012310 or 7700900123456"}',
        # A line break in a text, which JSON forbids, is published as it is.
        f'{{"id": "10", "message": "a\nb", "contact": {{"email": "{EMAIL}"}}}}',
    )
    theirs = ("0", "1", "4", "10")
    to_look_at = ("2", "3", "5", "6", "7", "8")
    assert found == {**dict.fromkeys(theirs, "theirs"), **dict.fromkeys(to_look_at, "look")}


NAME = "Kim Iñíguez"
PIECES = [
    *(form("josé.straße@people.example") for form in FORMS_OF_EMAIL),
    *(form(EMAIL) for form in FORMS_OF_EMAIL),
    *(form("7700900123") for form in FORMS_OF_PHONE),
    NAME,
    NAME.upper(),
    NAME.translate(FULL_WIDTH),
    unicodedata.normalize("NFD", NAME),
    "\u212aim Iniguez",
    "07700\n900123",
    f"07700{' ' * 12}900123",
    "07700x900123",
    "\0\x1b\0\0".join(EMAIL),
    EMAIL.replace("jane", "&#106ane"),
    "👍",
    "£5",
    "x",
    "7",
]


class Thorough(Person):
    """Searches each text."""

    def may_be_in(self, _: str) -> bool:
        return True


@settings(max_examples=150)
@given(
    st.sampled_from(
        [["emails"], ["phones"], ["emails", "phones"], ["phones", "names"], ["emails", "names"]]
    ),
    st.sampled_from([EMAIL, "josé.straße@people.example"]),
    st.lists(st.sampled_from(PIECES), min_size=1, max_size=3),
    st.sampled_from(["", " ", ", ", "👍", "\n"]),
    st.sampled_from(["contact", "message"]),
    st.booleans(),
)
@example(["phones"], EMAIL, ["07700\n900123"], "", "message", True)
@example(["phones"], EMAIL, [f"07700{' ' * 12}900123"], "", "contact", True)
@example(["emails"], EMAIL, ["\0\x1b\0\0".join(EMAIL)], "", "message", True)
@example(["phones", "names"], EMAIL, [unicodedata.normalize("NFD", NAME)], "", "message", False)
def test_the_plain_search_passes_over_nobody(
    given_: list[str], email: str, pieces: list[str], between: str, where: str, is_escaped: bool
) -> None:
    contact = {"emails": email, "phones": PHONE, "names": NAME}
    asked: dict[str, Any] = {what: [contact[what]] for what in given_}
    person = Person.of(**asked)
    thorough = Thorough.of(**asked)
    value = between.join(pieces)
    content = (
        {"firstName": value, "email": value, "phoneNumber": value} if where == "contact" else value
    )
    row = json.dumps({where: content, "x": "5"}, ensure_ascii=is_escaped)
    if thorough.is_shown_by(read_version(row)):
        assert person.may_be_in(row)
        assert person.is_shown_by(read_version(row))
