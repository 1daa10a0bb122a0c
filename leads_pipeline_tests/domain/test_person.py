"""Who is meant: spellings of one person, and whose lead a row is."""

import json
import re
import unicodedata
from collections.abc import Callable, Mapping
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from leads_pipeline.errors import QuestionError
from leads_pipeline.person.identity import (
    email_keys,
    name_key,
    phone_keys,
    plain,
    postcode_key,
    unescaped,
)
from leads_pipeline.person.matching import LeadKey, Sought
from leads_pipeline.person.showing import Evidence, texts_of
from leads_pipeline_tests.support.people import EMAIL, PHONE, lead

# --- who is meant -----------------------------------------------------------------------------------------------------

INVISIBLE = "\u200b\u200d\u2060\u00ad\ufeff\u200e\u202e\u2066\0\x1b"
LOCAL = st.from_regex(r"[a-z][a-z0-9_]{0,8}(?:\.[a-z0-9]{1,6}){0,2}(?:\+[a-z0-9]{1,5})?", fullmatch=True)
DOMAIN = st.sampled_from(["people.example", "gmail.com", "mail.people.example", "bücher.example", "straße.example"])
EMAILS = st.builds("{}@{}".format, LOCAL, DOMAIN)
# British numbers with and without an area's code in brackets; none begins like the country's own.
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
    lambda text: INVISIBLE.join(text),
    lambda text: f"\u202e{text}\u202c",
    lambda text: text.replace("bücher", "xn--bcher-kva").replace("straße", "xn--strae-oqa"),
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
    lambda digits: f"tel: 0{digits[:3]}.{digits[3:]}",
    lambda digits: " ".join(f"0{digits}"),
    lambda digits: f"0{digits}".translate(FULL_WIDTH),
    lambda digits: "0" + INVISIBLE.join(digits),
    lambda digits: "٠" + digits.translate(str.maketrans("0123456789", "٠١٢٣٤٥٦٧٨٩")),
]


@pytest.mark.parametrize("form", FORMS_OF_EMAIL)
@settings(max_examples=10, deadline=None)
@given(email=EMAILS)
def test_the_form_of_an_address_never_changes_its_key(form: Callable[[str], str], email: str) -> None:
    [key] = email_keys(email)
    assert email_keys(form(email)) == {key}
    assert email_keys(key) == {key}


@settings(max_examples=100, deadline=None)
@given(one=EMAILS, other=EMAILS)
def test_different_mailboxes_never_share_a_key(one: str, other: str) -> None:
    def truth(email: str) -> tuple[str, str]:
        local, _, domain = email.partition("@")
        untagged = local.split("+")[0] or local
        return (untagged.replace(".", "") if domain == "gmail.com" else untagged), domain

    assert (email_keys(one) == email_keys(other)) == (truth(one) == truth(other))


@pytest.mark.parametrize("form", FORMS_OF_PHONE)
@settings(max_examples=10, deadline=None)
@given(digits=NATIONAL)
def test_the_form_of_a_number_never_changes_its_key(form: Callable[[str], str], digits: str) -> None:
    assert phone_keys(form(digits)) == {f"+44{digits}"}


@settings(max_examples=100, deadline=None)
@given(
    st.sampled_from(["0", "+44", "0 ", "+44 "]),
    st.text("0123456789", min_size=9, max_size=11) | st.sampled_from(["7777777777", "1111111111"]),
    st.integers(0, 10),
)
def test_a_number_that_is_read_at_once_is_the_librarys(country: str, digits: str, gap: int) -> None:
    number = f"{country}{digits[:gap]} {digits[gap:]}".strip()
    assert phone_keys(number) == phone_keys(f"\u2060{number}")


@settings(max_examples=100, deadline=None)
@given(one=NATIONAL, other=NATIONAL, forms=st.tuples(*[st.sampled_from(FORMS_OF_PHONE)] * 2))
def test_different_digits_never_share_a_key(one: str, other: str, forms: tuple[Callable[[str], str], ...]) -> None:
    assert (phone_keys(forms[0](one)) == phone_keys(forms[1](other))) == (one == other)


@pytest.mark.parametrize(
    ("field", "keys"),
    [
        ("07700 900123 / 020 7946 0000", {"+447700900123", "+442079460000"}),
        ("07700 900123 or 07700 900124", {"+447700900123", "+447700900124"}),
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


def test_a_tag_makes_no_other_address_nor_do_dots_at_gmail() -> None:
    assert email_keys("J.Doe+homes@GoogleMail.com") == email_keys("jdoe@gmail.com") == {"jdoe@gmail.com"}
    assert email_keys("jane+homes@people.example") == email_keys("jane@people.example") == {"jane@people.example"}
    assert email_keys("jane@people.example, john@people.example") == {"jane@people.example", "john@people.example"}


@pytest.mark.parametrize("text", ["", "n/a", "none@none", "@", "@people.example", "jane@", "jane @ people.example"])
def test_what_is_no_address_has_no_key(text: str) -> None:
    assert email_keys(text) == frozenset()


def test_names_and_postcodes_have_a_key_whatever_their_form() -> None:
    assert name_key("José", "García-López") == name_key("GARCIA LOPEZ,  jose") == "garcia jose lopez"
    assert name_key("", " - ") is None
    assert postcode_key("sw1a 1aa") == postcode_key("SW1A\u200b1AA ") == "SW1A1AA"
    assert postcode_key("no postcode") is None


@settings(max_examples=100, deadline=None)
@given(st.text(st.characters(), max_size=60) | st.text("0123456789+()/ \ud800\udc00\0\u202e@.a", max_size=60))
def test_no_text_breaks_a_key_and_each_has_a_utf8_form(text: str) -> None:
    assert plain(plain(text)) == plain(text)
    for found in (plain(text), *email_keys(text), *phone_keys(text), name_key(text) or ""):
        found.encode()
    for key in email_keys(text):
        assert email_keys(key) == {key}
    for key in phone_keys(text):
        assert re.fullmatch(r"\+[0-9]{7,15}", key)
        assert phone_keys(key) == {key}


def test_the_texts_of_a_lead_come_in_the_order_in_which_they_were_received() -> None:
    content = json.dumps({"a": {"b": "1", "c": ["2", "3"]}, "d": "4"})
    assert [text for path, text in texts_of(content) if not path.endswith(".")] == ["1", "2", "3", "4"]


def test_the_escapes_of_json_are_read_in_what_is_no_json() -> None:
    assert unescaped(r'{"email": "jane\u0040people.example"') == '{"email": "jane@people.example"'
    assert unescaped(r"\ud83d\udc4d \ud83d") == "👍 "


# --- whose lead it is -------------------------------------------------------------------------------------------------


def groups(sought: Sought, *leads: Mapping[str, Any] | str, may_be_shared: bool = False) -> dict[str, str]:
    """The group of each lead that is found, by its id, or by its place where it is no object."""
    evidence: dict[LeadKey, list[Evidence]] = {}
    for number, one in enumerate(leads):
        text = one if isinstance(one, str) else json.dumps(one)
        shown = sought.evidence(texts_of(text))
        key = ("applicant", str(number) if isinstance(one, str) else one["id"])
        if sought.sees(shown) or key[1] in sought.lead_ids:
            assert sought.ids_alone or sought.may_be_in(text), text
            evidence.setdefault(key, []).append(shown)
    return {key[1]: str(group) for key, group in sought.grouped(evidence, may_be_shared=may_be_shared).items()}


NAME = "Kim Iñíguez"
SPOKEN = [
    NAME,
    NAME.upper(),
    NAME.translate(FULL_WIDTH),
    unicodedata.normalize("NFD", NAME),
    "\u212aim Iniguez",
]
DISGUISED = [
    *(form("josé.straße@people.example") for form in FORMS_OF_EMAIL),
    *(form(EMAIL) for form in FORMS_OF_EMAIL),
    *(form("7700900123") for form in FORMS_OF_PHONE),
    *(form for name in SPOKEN for form in (name, INVISIBLE.join(name))),
    *("07700\n900123", "07700\t900\r\n123", "👍", "£5", "é", "x", "7"),
]


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from([(["emails"]), (["phones"]), (["emails", "phones"]), (["names"]), (["emails", "names"])]),
    st.sampled_from([EMAIL, "josé.straße@people.example"]),
    st.lists(st.sampled_from(DISGUISED), min_size=1, max_size=3),
    st.sampled_from(["", " ", ", ", "👍", "\n"]),
    st.sampled_from(["contact", "message"]),
    st.booleans(),
    st.booleans(),
)
@example(["phones"], EMAIL, ["07700\n900123"], "", "message", True, False)
@example(["phones"], EMAIL, ["0" + INVISIBLE.join("7700900123")], "", "message", True, True)
@example(["phones"], EMAIL, [FORMS_OF_PHONE[-1]("7700900123")], "", "contact", False, False)
@example(["phones"], EMAIL, ["07700\u00a0900123"], "", "contact", True, False)
@example(["emails"], "josé.straße@people.example", ["josé.straße@people.example"], "", "contact", True, False)
@example(["names"], EMAIL, [unicodedata.normalize("NFD", NAME)], "", "message", False, False)
def test_no_row_is_passed_over_that_shows_them(
    given_: list[str], email: str, pieces: list[str], between: str, where: str, is_escaped: bool, is_twice: bool
) -> None:
    sought = Sought.of(**{what: [{"emails": email, "phones": PHONE, "names": NAME}[what]] for what in given_})
    text = between.join(pieces)
    value = json.dumps(text, ensure_ascii=is_escaped)[1:-1] if is_twice else text
    content = {"firstName": value, "email": value, "phoneNumber": value} if where == "contact" else value
    row = json.dumps({where: content, "x": "👍 £5"}, ensure_ascii=is_escaped)
    with patch.object(Sought, "may_be_in", lambda *_: True):  # which a mention asks first, too
        is_shown = sought.sees(sought.evidence(texts_of(row)))
    if is_shown:
        assert sought.may_be_in(row)
        assert re.search(sought.plain_pattern, row) or not row.isascii()


def test_a_number_that_goes_on_in_the_next_line_is_seen_in_json_too() -> None:
    assert groups(Sought.of(phones=[PHONE]), json.dumps({"message": "call 07700\n900123"})) == {"0": "D"}


def test_a_strange_character_alone_is_no_reason_to_read_a_row_in_full() -> None:
    for row in ('{"message": "\\ud83d\\udc4d \\u00a35"}', '{"message": "👍 £5 é"}'):
        assert not Sought.of([EMAIL], [PHONE], names=["Jane Roe"]).may_be_in(row)


def test_an_address_in_any_form_is_what_was_given() -> None:
    forms = [form(EMAIL) for form in FORMS_OF_EMAIL]
    leads = [lead(str(number), email=form, name="Jane Roe") for number, form in enumerate(forms)]
    assert groups(Sought.of([EMAIL]), *leads) == dict.fromkeys(map(str, range(len(forms))), "A")


def test_another_tag_is_the_same_address_and_a_mention_is_offered_apart() -> None:
    assert groups(
        Sought.of([EMAIL]),
        lead("tagged", email="jane.roe+rent@people.example"),
        lead("mentioned", email="john@people.example", message=f"Ask my wife, {EMAIL}!"),
        lead("stranger", email="jane.roe@elsewhere.example", message="jane roe at people"),
    ) == {"tagged": "A", "mentioned": "D"}


def test_a_telephone_takes_no_lead_of_another_name() -> None:
    own, wifes = lead("own", phone=PHONE, name="John Roe"), lead("wife's", phone="+447700900123", name="Jane Roe")
    nameless = lead("nameless", phone="0044 7700 900123")
    assert groups(Sought.of(phones=[PHONE]), own, nameless) == {"own": "A", "nameless": "A"}
    assert groups(Sought.of(phones=[PHONE]), own, wifes)["own"] == "C"
    assert groups(Sought.of(phones=[PHONE]), own, wifes)["wife's"] == "C"
    told = Sought.of(phones=[PHONE], names=["Roe, John"])
    assert groups(told, own, wifes) == {"own": "A", "wife's": "C"}
    # Whose it is that bears a shared number without a name, nobody knows; nor does a lead of his become hers by that.
    his = lead("wife's", phone=PHONE)
    assert groups(told, own, nameless, wifes, his) == {"own": "A", "nameless": "C", "wife's": "C"}
    by_email = lead("by e-mail", email=EMAIL, name="Jane Roe")
    assert groups(Sought.of([EMAIL], [PHONE]), own, wifes, by_email) == {"own": "C", "wife's": "A", "by e-mail": "A"}


def test_a_name_that_another_version_bears_is_not_the_persons() -> None:
    own, then = lead("own", email=EMAIL, phone=PHONE, name="Jane Roe"), lead("own", phone=PHONE, name="John Roe")
    spouses, hers = lead("spouse's", phone=PHONE, name="John Roe"), lead("hers", phone=PHONE, name="Jane Roe")
    corrected = lead("corrected", phone=PHONE, name="Jane Roe"), lead("corrected", phone=PHONE, name="John Roe")
    assert groups(Sought.of([EMAIL], [PHONE]), own, then, spouses, hers, *corrected) == {
        **dict.fromkeys(("own", "hers", "corrected"), "A"),
        "spouse's": "C",
    }
    assert groups(Sought.of(phones=[PHONE], lead_ids=["own"]), own, then, spouses) == {"own": "A", "spouse's": "C"}


def test_an_address_that_was_not_given_mentions_no_name() -> None:
    sought = Sought.of(phones=[PHONE], names=["Jane Roe"])
    assert sought.mentions("Ask Jane  Roe. JANE ROE!") == 2
    assert sought.mentions("JANE.ROE@people.example, x@jane-roe.example, jane.roe+homes@people.example") == 0


def test_a_name_and_a_postcode_only_propose() -> None:
    found = groups(
        Sought.of(names=["Zoë Roe"], postcodes=["SW1A 1AA"]),
        lead("both", name="zoe ROE", consumerPostcode="sw1a1aa"),
        lead("name", name="Zoë Roe"),
        lead("listing", name="Zoë Roe", listingDetails={"address": {"postcode": "SW1A 1AA"}}),
    )
    assert found == {"both": "P"}
    assert groups(Sought.of(names=["Zoë Roe"]), lead("name", name="ROE ZOE")) == {"name": "P"}


def test_all_versions_of_a_lead_decide_together() -> None:
    former, now = lead("1", email=EMAIL, name="Jane Roe"), lead("1", email="other@people.example", name="Jane Smith")
    assert groups(Sought.of([EMAIL]), former, now) == {"1": "A"}


def test_what_many_share_is_refused_unless_it_may_be() -> None:
    office = [lead(str(number), phone=PHONE, email=EMAIL, name=f"Person {'abcdef'[number]}") for number in range(4)]
    for sought in (Sought.of(phones=[PHONE]), Sought.of([EMAIL])):
        with pytest.raises(QuestionError, match="4 different names") as told:
            groups(sought, *office)
        assert EMAIL not in str(told.value)
        assert len(groups(sought, *office[:3])) == 3
        assert len(groups(sought, *office, may_be_shared=True)) == 4
    to_agent = lead("1", email=EMAIL, recipientEmail=EMAIL)
    with pytest.raises(QuestionError, match="at the agent's"):
        groups(Sought.of([EMAIL]), to_agent)


@pytest.mark.parametrize(
    "wrong", [{"emails": ["n/a"]}, {"phones": ["12 34"]}, {"postcodes": ["here"]}, {"names": ["-"]}, {}]
)
def test_what_says_nothing_of_a_person_is_refused_without_being_repeated(wrong: dict[str, list[str]]) -> None:
    with pytest.raises(QuestionError) as told:
        Sought.of(**wrong)
    assert not any(text in str(told.value) for texts in wrong.values() for text in texts if text != "-")
    if wrong:  # nor is it passed over beside what says something
        with pytest.raises(QuestionError, match="is none"):
            Sought.of(**{"lead_ids": ["1"], **wrong})


def test_repeated_keys_odd_types_and_broken_json_hide_nobody() -> None:
    sought = Sought.of([EMAIL], [PHONE])
    deep = "[" * 100_000
    found = groups(
        sought,
        f'{{"id": "0", "contact": {{"email": "{EMAIL}", "email": "other@people.example"}}}}',
        f'{{"id": "1", "contact": {{"email": ["other@people.example", "{EMAIL}"]}}}}',
        '{"id": "2", "contact": {"phoneNumber": 447700900123}}',
        f'{{"id": "3", "contact": "{EMAIL}"}}',
        '{"id": "4", "contact": {"email": "jane.roe\\u0040people.example\\ud800\\u0000"}}',
        f'{{"id": "5", "{EMAIL}": 1}}',
        f'{{"id": "6", "message": "{EMAIL}", "cut',
        f'{{"id": "7", "n": {"7" * 5_000}, "contact": {{"emailAddress": "{EMAIL}"}}}}',
        f'{{"id": "8", "nested": {deep}"{EMAIL}"',
        f'{{"id": "9", "message": "call {PHONE}10 or 7700900123456"}}',
    )
    assert found == {**dict.fromkeys("012347", "A"), **dict.fromkeys("568", "D")}


@settings(max_examples=150, deadline=None)
@given(st.dictionaries(st.text(max_size=8), st.text() | st.integers() | st.lists(st.text(max_size=5)), max_size=4))
def test_no_lead_breaks_the_search(content: dict[str, Any]) -> None:
    sought = Sought.of([EMAIL], [PHONE], ["x"], ["Jane Roe"], ["SW1A 1AA"])
    assert not sought.evidence(texts_of(json.dumps(content))).emails
    assert sought.sees(sought.evidence(texts_of(json.dumps({**content, "contact": {"email": EMAIL}}))))
