"""Who is meant: spellings of one person, what a lead shows of them, and whose lead it is."""

import json
import re
import unicodedata
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from leads_pipeline.domain.person import (
    THEIRS,
    LeadKey,
    Person,
    Shown,
    email_keys,
    name_key,
    phone_keys,
    plain,
    postcode_key,
    reasons,
    shown_by,
)
from leads_pipeline.errors import QuestionError

EMAIL, PHONE = "jane.roe@people.example", "07700 900123"

INVISIBLE = "\u200b\u200d\u2060\u00ad\ufeff\u200e\u202e\u2066\0\x1b"
LOCAL = st.from_regex(r"[a-z][a-z0-9_]{0,8}(?:\.[a-z0-9]{1,6}){0,2}(?:\+[a-z0-9]{1,5})?", fullmatch=True)
DOMAIN = st.sampled_from(["people.example", "gmail.com", "mail.people.example", "bücher.example", "straße.example"])
EMAILS = st.builds("{}@{}".format, LOCAL, DOMAIN)
NATIONAL = st.from_regex(r"(?:7[1-9]|20|1[2-9]|3[0-3]|8[0-7])[0-9]{8}", fullmatch=True)
FULL_WIDTH = str.maketrans(
    "0123456789@abcdefghijklmnopqrstuvwxyz",
    "０１２３４５６７８９＠ａｂｃｄｅｆｇｈｉｊｋｌｍｎｏｐｑｒｓｔｕｖｗｘｙｚ",
)

FORMS_OF_EMAIL: list[Callable[[str], str]] = [
    lambda text: text.replace("ß", "ẞ").upper(),
    str.title,
    lambda text: text.translate(FULL_WIDTH),
    lambda text: f"  <{text}>, ",
    lambda text: f"Jane Doe <mailto:{text}>.",
    lambda text: f"my address is {text} (home)",
    lambda text: INVISIBLE.join(text),
    lambda text: f"\u202e{text}\u202c",
    lambda text: text.replace("bücher", "xn--bcher-kva").replace("straße", "xn--strae-oqa"),
    lambda text: text.replace("@", "+homes@") if "+" not in text else text,
    lambda text: text.replace("@", "%40"),
    lambda text: text.replace("@", "&#64;"),
    lambda text: '"{}"@{}'.format(*text.split("@")),
]
FORMS_OF_PHONE: list[Callable[[str], str]] = [
    lambda digits: f"0{digits}",
    lambda digits: f"+44{digits}",
    lambda digits: f"+44 (0){digits}",
    lambda digits: f"+44(0) {digits[:2]} {digits[2:]}",
    lambda digits: f"0044{digits}",
    lambda digits: f"0044 (0) {digits}",
    lambda digits: f"(0{digits[:4]}) {digits[4:7]}-{digits[7:]}",
    lambda digits: f"0{digits} ext. 12",
    lambda digits: f"0{digits} x7",
    lambda digits: f"0{digits[:4]}_{digits[4:]}",
    lambda digits: f"tel: 0{digits[:3]}.{digits[3:]}",
    lambda digits: f"0{digits} (work)",
    lambda digits: f"0{digits[:4]} {digits[4:]} (eve)",
    lambda digits: f"0{digits} mobile",
    lambda digits: f"please call 0{digits} after 6pm",
    lambda digits: f"0{digits} (WhatsApp)",
    lambda digits: " ".join(f"0{digits}"),
    lambda digits: f"0{digits}".translate(FULL_WIDTH),
    lambda digits: "0" + INVISIBLE.join(digits),
    lambda digits: "٠" + digits.translate(str.maketrans("0123456789", "٠١٢٣٤٥٦٧٨٩")),
]


# --- keys ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", FORMS_OF_EMAIL)
@settings(max_examples=10)
@given(email=EMAILS)
def test_the_form_of_an_address_never_changes_its_key(form: Callable[[str], str], email: str) -> None:
    [key] = email_keys(email)
    assert email_keys(form(email)) == {key}
    assert email_keys(key) == {key}


@settings(max_examples=100)
@given(one=EMAILS, other=EMAILS)
def test_different_mailboxes_never_share_a_key(one: str, other: str) -> None:
    def mailbox(email: str) -> tuple[str, str]:
        local, _, domain = email.partition("@")
        local = local.split("+")[0]
        return (local.replace(".", "") if domain == "gmail.com" else local), domain

    assert (email_keys(one) == email_keys(other)) == (mailbox(one) == mailbox(other))


@pytest.mark.parametrize("form", FORMS_OF_PHONE)
@settings(max_examples=10)
@given(digits=NATIONAL)
def test_the_form_of_a_number_never_changes_its_key(form: Callable[[str], str], digits: str) -> None:
    assert phone_keys(form(digits)) == {f"+44{digits}"}


@settings(max_examples=100)
@given(one=NATIONAL, other=NATIONAL, forms=st.tuples(*[st.sampled_from(FORMS_OF_PHONE)] * 2))
def test_different_digits_never_share_a_key(one: str, other: str, forms: tuple[Callable[[str], str], ...]) -> None:
    assert (phone_keys(forms[0](one)) == phone_keys(forms[1](other))) == (one == other)


@pytest.mark.parametrize(
    ("field", "keys"),
    [
        ("07700 900123 / 020 7946 0000", {"+447700900123", "+442079460000"}),
        ("07700 900123 or 07700 900124", {"+447700900123", "+447700900124"}),
        ("07700900123-07700900124", {"+447700900123", "+447700900124"}),
        ("07700900123 (mobile) 0161 4960000 (home)", {"+447700900123", "+441614960000"}),
        ("+1 650-253-0000; 0044 7700 900123 ext 9", {"+16502530000", "+447700900123"}),
        ("447700900123", {"+447700900123"}),
        ("n/a", set()),
        ("00000000000", set()),
        ("123456", set()),
        ("7" * 5_000, set()),
        ("", set()),
    ],
)
def test_a_field_has_each_number_that_is_in_it(field: str, keys: set[str]) -> None:
    assert phone_keys(field) == keys


def test_gmail_is_one_mailbox() -> None:
    assert email_keys("J.Doe+homes@GoogleMail.com") == email_keys("jdoe@gmail.com") == {"jdoe@gmail.com"}


@pytest.mark.parametrize("text", ["", "n/a", "none@none", "@", "@people.example", "jane@", "jane @ people.example"])
def test_a_text_without_an_address_has_no_key(text: str) -> None:
    assert email_keys(text) == frozenset()


def test_names_and_postcodes_have_a_key_whatever_their_form() -> None:
    assert name_key("José", "García-López") == name_key("GARCIA LOPEZ,  jose") == "garcia jose lopez"
    assert name_key("", " - ") is None
    assert postcode_key("sw1a 1aa") == postcode_key("SW1A\u200b1AA ") == "SW1A1AA"
    assert postcode_key("no postcode") is None


@settings(max_examples=100)
@given(st.text(st.characters(), max_size=60) | st.text("0123456789+()/ \ud800\udc00\0\u202e@.a", max_size=60))
def test_no_text_breaks_a_key(text: str) -> None:
    assert plain(plain(text)) == plain(text)
    for found in (plain(text), *email_keys(text), *phone_keys(text), name_key(text) or ""):
        found.encode()
    for key in email_keys(text):
        assert email_keys(key) == {key}
    for key in phone_keys(text):
        assert re.fullmatch(r"\+[0-9]{7,15}", key)
        assert phone_keys(key) == {key}


# --- whose lead it is ---------------------------------------------------------------------------------------------


def lead(lead_id: str, *, email: str = "", phone: str = "", name: str = "", **more: Any) -> dict[str, Any]:
    first, _, last = name.partition(" ")
    contact = {"firstName": first, "lastName": last, "phoneNumber": phone, "email": email}
    return {"id": lead_id, "contact": contact, **more}


def groups(person: Person, *leads: Mapping[str, Any] | str, is_shared: bool = False) -> dict[str, str]:
    """`theirs` or `look` for each lead that is found, by its id, or by its place if it is a text."""
    shown: dict[LeadKey, list[Shown]] = {}
    for number, one in enumerate(leads):
        text = one if isinstance(one, str) else json.dumps(one)
        key = ("applicant", str(number) if isinstance(one, str) else one["id"])
        shown.setdefault(key, []).append(shown_by(text))
        assert person.may_be_in(text) or not person.sees(shown[key][-1])
    found = reasons(person, shown, is_shared=is_shared)
    return {key[1]: "theirs" if why & THEIRS else "look" for key, why in found.items()}


def test_an_address_in_any_form_is_theirs() -> None:
    forms = [form(EMAIL) for form in FORMS_OF_EMAIL]
    leads = [lead(str(number), email=form, name="Jane Roe") for number, form in enumerate(forms)]
    assert groups(Person.of([EMAIL]), *leads) == dict.fromkeys(map(str, range(len(forms))), "theirs")


def test_a_number_in_any_form_is_theirs_under_their_name() -> None:
    forms = [form("7700900123") for form in FORMS_OF_PHONE]
    leads = [lead(str(number), phone=form, name="Jane Roe") for number, form in enumerate(forms)]
    person = Person.of(phones=[PHONE], names=["Roe, Jane"])
    assert groups(person, *leads) == dict.fromkeys(map(str, range(len(forms))), "theirs")


def test_a_number_takes_no_lead_of_somebody_else() -> None:
    his, hers = lead("his", phone=PHONE, name="John Roe"), lead("hers", phone="+447700900123", name="Jane Roe")
    nameless = lead("nameless", phone="0044 7700 900123")
    his_address = lead("his address", phone=PHONE, email="john@people.example")
    by_address = lead("by address", email=EMAIL, name="Jane Roe")
    leads = (his, hers, nameless, his_address, by_address)
    assert groups(Person.of(phones=[PHONE]), nameless) == {"nameless": "theirs"}
    assert groups(Person.of(phones=[PHONE]), his, nameless) == {"his": "look", "nameless": "look"}
    assert groups(Person.of([EMAIL], [PHONE]), *leads) == {
        "his": "look",
        "hers": "theirs",
        "nameless": "look",
        "his address": "look",
        "by address": "theirs",
    }


def test_a_spouse_who_wrote_once_with_the_address_keeps_their_own_leads_if_the_name_is_given() -> None:
    """Their own lead was erased with the person, and later ones were refused."""
    leads = (
        lead("hers", email=EMAIL, phone=PHONE, name="Jane Roe"),
        lead("her number", phone=PHONE, name="Jane Roe"),
        lead("his, with her address", email=EMAIL, name="John Roe"),
        lead("his", email="john@people.example", phone=PHONE, name="John Roe"),
    )
    assert groups(Person.of([EMAIL], [PHONE], names=["Jane Roe"]), *leads) == {
        "hers": "theirs",
        "her number": "theirs",
        "his, with her address": "theirs",
        "his": "look",
    }


@pytest.mark.parametrize(
    ("given", "shown", "why"),
    [
        ({"names": ["Jane Roe"]}, {"email": EMAIL, "name": "Jane Roe"}, ["the given e-mail address", "the given name"]),
        (
            {"names": ["Jane Roe"]},
            {"email": EMAIL, "name": "John Roe"},
            ["the given e-mail address, under another name than the given one"],
        ),
        (
            {"names": ["Jane Roe"]},
            {"phone": PHONE, "name": "John Roe"},
            ["the given telephone number, under another name"],
        ),
        (
            {},
            {"phone": PHONE, "email": "x@y.example"},
            ["the given telephone number, under no name and with another e-mail address"],
        ),
        ({"postcodes": ["SW1A 1AA"]}, {"consumerPostcode": "sw1a1aa"}, ["the given postcode"]),
        (
            {"names": ["Jane Roe"], "postcodes": ["SW1A 1AA"]},
            {"name": "Jane Roe", "consumerPostcode": "sw1a1aa"},
            ["the given name and postcode"],
        ),
    ],
)
def test_a_reason_names_the_one_case_that_holds(given: dict[str, Any], shown: dict[str, Any], why: list[str]) -> None:
    person = Person.of([EMAIL], [PHONE], **given)
    [found] = reasons(person, {("applicant", "1"): [shown_by(json.dumps(lead("1", **shown)))]}).values()
    assert sorted(found) == why


def test_a_lead_has_all_its_reasons() -> None:
    """Who shares the number may also write about them (a receipt that said otherwise was wrong)."""
    john = lead("john", phone=PHONE, name="John Roe", message=f"My wife is {EMAIL}")
    [why] = reasons(Person.of([EMAIL], [PHONE]), {("applicant", "john"): [shown_by(json.dumps(john))]}).values()
    assert {reason.name for reason in why} == {"OTHER_NAME", "MENTION"}


def test_a_mention_is_to_look_at() -> None:
    person = Person.of([EMAIL], [PHONE], names=["Jane Roe"])
    for text in (
        f"Ask my wife, {EMAIL}!",
        "call 07700\n900123",
        "Ask Jane  Roe",
        "JANE-ROE",
        "&#106;ane.roe&#64;people.example",
    ):
        assert groups(person, lead("1", email="john@people.example", message=text)) == {"1": "look"}, text
    for text in ("call 07700 90012310", "jane at the office", "jane.roe@elsewhere.example"):
        assert groups(person, lead("1", email="john@people.example", message=text)) == {}, text


def test_a_name_and_a_postcode_are_to_look_at() -> None:
    found = groups(
        Person.of(names=["Zoë Roe"], postcodes=["SW1A 1AA"]),
        lead("both", name="zoe ROE", consumerPostcode="sw1a1aa"),
        lead("name", name="Zoë Roe"),
        lead("listing", name="Zoë Roe", listingDetails={"address": {"postcode": "SW1A 1AA"}}),
    )
    assert found == {"both": "look"}


def test_all_versions_of_a_lead_decide_together() -> None:
    former, now = lead("1", email=EMAIL, name="Jane Roe"), lead("1", email="other@people.example", name="Jane Smith")
    assert groups(Person.of([EMAIL]), former, now) == {"1": "theirs"}
    assert groups(Person.of(lead_ids=["1"]), now) == {"1": "theirs"}


def test_a_shared_identifier_is_refused_unless_it_may_be_shared() -> None:
    office = [lead(str(number), phone=PHONE, email=EMAIL, name=f"Person {'abcdef'[number]}") for number in range(4)]
    for person in (Person.of(phones=[PHONE]), Person.of([EMAIL])):
        with pytest.raises(QuestionError, match="4 names") as told:
            groups(person, *office)
        assert EMAIL not in str(told.value)
        assert len(groups(person, *office[:3])) == 3
        assert len(groups(person, *office, is_shared=True)) == 4


@pytest.mark.parametrize(
    "wrong", [{"emails": ["n/a"]}, {"phones": ["12 34"]}, {"postcodes": ["here"]}, {"names": ["-"]}, {}]
)
def test_an_identifier_that_cannot_be_read_is_refused_without_being_repeated(wrong: dict[str, list[str]]) -> None:
    with pytest.raises(QuestionError) as told:
        Person.of(**wrong)
    assert not any(text in str(told.value) for texts in wrong.values() for text in texts if text != "-")
    if wrong:
        with pytest.raises(QuestionError, match="isn't valid"):
            Person.of(**{"lead_ids": ["1"], **wrong})


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
    )
    assert found == {**dict.fromkeys("012347", "theirs"), **dict.fromkeys("568", "look")}


NAME = "Kim Iñíguez"
PIECES = [
    *(form("josé.straße@people.example") for form in FORMS_OF_EMAIL),
    *(form(EMAIL) for form in FORMS_OF_EMAIL),
    *(form("7700900123") for form in FORMS_OF_PHONE),
    *(NAME, NAME.upper(), NAME.translate(FULL_WIDTH), unicodedata.normalize("NFD", NAME), "\u212aim Iniguez"),
    *("07700\n900123", "07700\t900\r\n123", "👍", "£5", "é", "x", "7"),
    *(f"07700{' ' * 12}900123", "07700x900123", "\0\x1b\0\0".join(EMAIL), EMAIL.replace("jane", "&#106ane")),
]


class Thorough(Person):
    """Searches each text."""

    def may_be_in(self, _: str) -> bool:
        return True


@settings(max_examples=150)
@given(
    st.sampled_from([["emails"], ["phones"], ["emails", "phones"], ["names"], ["emails", "names"]]),
    st.sampled_from([EMAIL, "josé.straße@people.example"]),
    st.lists(st.sampled_from(PIECES), min_size=1, max_size=3),
    st.sampled_from(["", " ", ", ", "👍", "\n"]),
    st.sampled_from(["contact", "message"]),
    st.booleans(),
)
@example(["phones"], EMAIL, ["07700\n900123"], "", "message", True)
@example(["phones"], EMAIL, [f"07700{' ' * 12}900123"], "", "contact", True)
@example(["phones"], EMAIL, ["07700x900123"], "", "contact", True)
@example(["emails"], EMAIL, ["\0\x1b\0\0".join(EMAIL)], "", "message", True)
@example(["emails"], EMAIL, [EMAIL.replace("jane", "&#106ane")], "", "contact", True)
@example(["names"], EMAIL, [unicodedata.normalize("NFD", NAME)], "", "message", False)
def test_the_plain_search_passes_over_nobody(
    given_: list[str], email: str, pieces: list[str], between: str, where: str, is_escaped: bool
) -> None:
    given = {what: [{"emails": email, "phones": PHONE, "names": NAME}[what]] for what in given_}
    person, thorough = Person.of(**given), Thorough.of(**given)
    value = between.join(pieces)
    content = {"firstName": value, "email": value, "phoneNumber": value} if where == "contact" else value
    row = json.dumps({where: content, "x": "5"}, ensure_ascii=is_escaped)
    if thorough.sees(shown_by(row)):
        assert person.may_be_in(row)
        assert person.sees(shown_by(row))
