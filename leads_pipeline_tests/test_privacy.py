"""The person behind the leads: who is meant, where they lie, what they are given."""

import re
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leads_pipeline.privacy.identity import (
    email_keys,
    mailbox_of,
    name_key,
    phone_keys,
    plain,
    postcode_key,
    unescaped,
)

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
        return (local.split("+")[0].replace(".", "") if domain == "gmail.com" else local), domain

    assert (email_keys(one) == email_keys(other)) == (truth(one) == truth(other))


@pytest.mark.parametrize("form", FORMS_OF_PHONE)
@settings(max_examples=10, deadline=None)
@given(digits=NATIONAL)
def test_the_form_of_a_number_never_changes_its_key(form: Callable[[str], str], digits: str) -> None:
    assert phone_keys(form(digits)) == {f"+44{digits}"}


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


def test_gmail_is_one_mailbox_and_tags_elsewhere_are_offered() -> None:
    assert email_keys("J.Doe+homes@GoogleMail.com") == email_keys("jdoe@gmail.com") == {"jdoe@gmail.com"}
    [tagged], [bare] = email_keys("jane+homes@people.example"), email_keys("jane@people.example")
    assert tagged != bare == mailbox_of(tagged) == mailbox_of(bare)
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


def test_the_escapes_of_json_are_read_in_what_is_no_json() -> None:
    assert unescaped(r'{"email": "jane\u0040people.example"') == '{"email": "jane@people.example"'
    assert unescaped(r"\ud83d\udc4d \ud83d") == "👍 \ufffd"
