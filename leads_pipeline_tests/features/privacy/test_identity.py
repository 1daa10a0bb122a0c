"""Whose lead it is: theirs, to look at, or neither, with all reasons."""

import json
import unicodedata
from collections.abc import Mapping, Sequence
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
    person: Person, leads: Mapping[LeadKey, Sequence[str]], *, is_shared: bool = False
) -> dict[LeadKey, str]:
    """`theirs`, `look` or `no` for each lead, which is given by the texts of its versions."""
    versions = {key: list(map(read_version, texts)) for key, texts in leads.items()}
    for key, texts in leads.items():
        for text, version in zip(texts, versions[key], strict=True):
            assert person.may_be_in(text) or not person.is_shown_by(version)
            assert read_contact(text).contact == version.contact

    found = dict.fromkeys(leads, "no")
    for key, reasons in judge(person, versions, is_shared=is_shared).items():
        found[key] = "theirs" if reasons & THEIRS else "look"
    return found


def applicant(number: int) -> LeadKey:
    return "applicant", str(number)


@pytest.mark.parametrize(
    "request_", PEOPLE, ids=[f"{number}: {one['about']}" for number, one in enumerate(PEOPLE)]
)
def test_a_person_is_found_and_a_stranger_is_not(request_: dict[str, Any]) -> None:
    asked = request_["ask"]
    leads = {(one["kind"], str(n)): one for n, one in enumerate(request_["leads"])}
    given_ids = [
        key for key, one in leads.items() if one["payload"].get("id") in asked.get("lead", ())
    ]
    try:
        person = Person.of(
            asked.get("email", ()),
            asked.get("phone", ()),
            given_ids,
            asked.get("name", ()),
            asked.get("postcode", ()),
        )
    except QuestionError:  # whatever can't be read, finds nobody, and says so
        assert {one["expect"] for one in leads.values()} == {"no"}
        return

    texts = {key: [json.dumps(one["payload"])] for key, one in leads.items()}
    found = groups(person, texts, is_shared=True)

    for key, one in leads.items():
        assert one.get("unsure") or found[key] == one["expect"], one


def test_all_versions_of_a_lead_decide_together() -> None:
    former = json.dumps(lead("1", email=EMAIL, name="Jane Roe"))
    now = json.dumps(lead("1", email="other@people.example", name="Jane Smith"))

    by_email = groups(Person.of([EMAIL]), {applicant(1): [former, now]})
    by_id = groups(Person.of(lead_ids=[applicant(1)]), {applicant(1): [now]})

    assert by_email == by_id == {applicant(1): "theirs"}


def test_a_shared_identifier_is_refused_unless_it_may_be_shared() -> None:
    office = {
        applicant(n): [json.dumps(lead("", phone=PHONE, email=EMAIL, name=f"Person {name}"))]
        for n, name in enumerate("abcd")
    }
    three = {applicant(n): office[applicant(n)] for n in range(3)}
    for person in (Person.of(phones=[PHONE]), Person.of([EMAIL])):
        with pytest.raises(QuestionError, match="4 names") as told:
            groups(person, office)
        assert EMAIL not in str(told.value)
        assert "no" not in groups(person, three).values()
        assert "no" not in groups(person, office, is_shared=True).values()


def test_repeated_keys_odd_types_and_broken_json_hide_nobody() -> None:
    expected = {
        f'{{"contact": {{"email": "{EMAIL}", "email": "other@people.example"}}}}': "theirs",
        f'{{"contact": {{"email": ["other@people.example", "{EMAIL}"]}}}}': "theirs",
        '{"contact": {"phoneNumber": 447700900123}}': "look",
        f'{{"contact": "{EMAIL}"}}': "look",
        '{"contact": {"email": "jane.roe\\u0040people.example\\ud800\\u0000"}}': "theirs",
        f'{{"{EMAIL}": 1}}': "look",
        f'{{"message": "{EMAIL}", "cut': "look",
        f'{{"n": {"7" * 5_000}, "contact": {{"emailAddress": "{EMAIL}"}}}}': "look",
        f'{{"nested": {"[" * 100_000}"{EMAIL}"': "look",
        '{"message": "call 07700 90012310 or 7700900123456"}': "no",
        # A line break in a text, which JSON forbids, is published as it is.
        f'{{"message": "a\nb", "contact": {{"email": "{EMAIL}"}}}}': "theirs",
    }
    texts = {applicant(number): [text] for number, text in enumerate(expected)}

    found = groups(Person.of([EMAIL], [PHONE]), texts)

    assert [*found.values()] == [*expected.values()]


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
