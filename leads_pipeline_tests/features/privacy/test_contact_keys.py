"""The keys that a text holds: an address, a number or a name in whatever people write into a field."""

import re
import time
from collections.abc import Callable

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from leads_pipeline.features.privacy.contact_keys import (
    former_keys,
    former_name_key,
    keys_in,
    name_key,
    plain,
    postcode_key,
)
from leads_pipeline_tests.support.spellings import (
    DOMAIN,
    EMAILS,
    FIELDS_WITH_ADDRESS,
    FIELDS_WITH_NUMBER,
    FORMS_OF_EMAIL,
    FORMS_OF_PHONE,
    LOCAL,
    NATIONAL,
)


@pytest.mark.parametrize("form", FORMS_OF_EMAIL)
@settings(max_examples=10)
@given(email=EMAILS)
def test_the_form_of_an_address_never_changes_its_key(
    form: Callable[[str], str], email: str
) -> None:
    [key] = keys_in(email).emails
    assert keys_in(form(email)).emails == {key}
    assert keys_in(key).emails == {key}


@settings(max_examples=200)
@given(field=FIELDS_WITH_ADDRESS)
def test_an_address_ends_at_every_quote_dash_bracket_and_closing_mark(
    field: tuple[str, str],
) -> None:
    text, email = field
    assert keys_in(text).emails == keys_in(email).emails


@settings(max_examples=100)
@given(one=st.builds("{}@{}".format, LOCAL, DOMAIN), other=st.builds("{}@{}".format, LOCAL, DOMAIN))
def test_different_mailboxes_never_share_a_key(one: str, other: str) -> None:
    def mailbox(email: str) -> tuple[str, str]:
        local, _, domain = email.partition("@")
        local = local.split("+")[0]
        return (local.replace(".", "") if domain == "gmail.com" else local), domain

    assert (keys_in(one).emails == keys_in(other).emails) == (mailbox(one) == mailbox(other))


@pytest.mark.parametrize("form", FORMS_OF_PHONE)
@settings(max_examples=10)
@given(digits=NATIONAL)
def test_the_form_of_a_number_never_changes_its_key(
    form: Callable[[str], str], digits: str
) -> None:
    assert keys_in(form(digits)).phones == {f"+44{digits}"}


@settings(max_examples=300)
@given(field=FIELDS_WITH_NUMBER)
def test_a_number_is_read_among_words_prices_times_bedrooms_and_a_second_number(
    field: tuple[str, set[str]],
) -> None:
    text, keys = field
    assert keys_in(text).phones == keys


@settings(max_examples=200)
@given(digits=NATIONAL, more=st.text("0123456789", min_size=1, max_size=3), is_before=st.booleans())
def test_a_fragment_of_a_longer_run_is_never_a_key(
    digits: str, more: str, *, is_before: bool
) -> None:
    assume(more != "44")
    run = f"0{digits[:4]} {digits[4:7]} {digits[7:]}{more}"
    assert (
        f"+44{digits}"
        not in keys_in(f"{more.replace('0', '1')}0{digits}" if is_before else run).phones
    )


@pytest.mark.parametrize(
    ("field", "keys"),
    [
        # Fault 92
        ("07911 123456 9am-5pm", {"+447911123456"}),
        ("07911 123456 2 bed", {"+447911123456"}),
        ("07911 123456 10am", {"+447911123456"}),
        ("Flat 2 07911 123456", {"+447911123456"}),
        ("£450,000 07911 123456", {"+447911123456"}),
        ("07911 123456 07955 123456", {"+447911123456", "+447955123456"}),
        ("07911 123 4567", set()),
        ("07955 123 4567", set()),
        ("07700900123-07700900124", {"+447700900123", "+447700900124"}),
        ("07700900123 (mobile) 0161 4960000 (home)", {"+447700900123", "+441614960000"}),
        ("+1 650-253-0000; 0044 7700 900123 ext 9", {"+16502530000", "+447700900123"}),
        ("447700900123", {"+447700900123"}),
        ("01/02/25-03/02/25 07911 123456", {"+447911123456"}),
        ("2025-02-01 07911 123456", {"+447911123456"}),
        ("01/02/25 020 7946 0958", {"+442079460958"}),
        ("10.00 \u2013 20.00 020 7946 0958", {"+442079460958"}),
        ("18:00 7911 123456", {"+447911123456"}),
        ("+33 6.12.12.34.56", {"+33612123456"}),
        ("020.79.46.09.58", {"+442079460958"}),
        ("+52 1 55 1234 5678", set()),
        ("n/a", set()),
        ("00000000000", set()),
        ("7" * 5_000, set()),
    ],
)
def test_a_field_has_each_number_that_is_in_it(field: str, keys: set[str]) -> None:
    assert keys_in(field).phones == keys


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ("o'brien@people.example", {"brien@people.example"}),
        ("gro\u00df@people.example", {"gross@people.example"}),
        ("J.Doe+homes@GoogleMail.com", {"jdoe@gmail.com"}),
        ("0800 1111", {"+448001111"}),
        ("07700900123-07700900124", {"+447700900123", "+447700900124"}),
        ("Jane", set()),
    ],
)
def test_an_entry_from_before_keeps_its_keys(text: str, keys: set[str]) -> None:
    emails, phones = former_keys(text)
    assert emails | phones == keys


def test_gmail_is_one_mailbox() -> None:
    assert (
        keys_in("J.Doe+homes@GoogleMail.com").emails
        == keys_in("jdoe@gmail.com").emails
        == {"jdoe@gmail.com"}
    )


@pytest.mark.parametrize("apostrophe", "\u2019\u00b4\u02bc`")
def test_every_apostrophe_is_one(apostrophe: str) -> None:
    assert keys_in(f"o{apostrophe}brien@people.example").emails == {"o'brien@people.example"}
    assert name_key(f"O{apostrophe}Brien") == "obrien"


@pytest.mark.parametrize(
    ("text", "local"),
    [
        ("jane\u2011doe", "jane-doe"),
        ("\u0130brahim", "ibrahim"),
        ("jane#home", None),
        ('jane"bob"', None),
        ("jan\u0435bob", None),
        ("jane\u4e2d\u6587", None),
        ("q\u0303bob", "q\u0303bob"),
        ("", None),
    ],
)
def test_the_end_of_a_local_part_is_never_a_key(text: str, local: str | None) -> None:
    """It would be a stranger's."""
    emails = {f"{local}@people.example"} if local else frozenset()
    assert keys_in(f"{text}@people.example").emails == emails


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Łukasz", "Lukasz"),
        ("Bjørn", "Bjorn"),
        ("Đặng", "Dang"),
        ("Işık", "Isik"),
        ("Æsa", "Aesa"),
        ("Þór", "Thor"),
        ("Œuvré", "oeuvre"),
        ("O'Brien", "OBrien"),
        ("O\u2019Brien", "OBRIEN"),
        ("José García-López", "GARCIA LOPEZ,  jose"),
    ],
)
def test_a_name_has_one_key_with_accents_and_apostrophes_or_without(one: str, other: str) -> None:
    assert name_key(one) == name_key(other)


def test_signs_that_write_vowels_make_different_names() -> None:
    assert name_key("सीमा") != name_key("सोमा")


def test_a_contact_in_a_name_field_is_no_part_of_the_name() -> None:
    assert name_key("Jane 07700 900123", "Roe jane@people.example") == "jane roe"
    assert name_key("", " - ") is None


def test_a_postcode_has_a_key_whatever_its_form() -> None:
    assert postcode_key("sw1a 1aa") == postcode_key("SW1A\u200b1AA. ") == "SW1A1AA"
    assert postcode_key("no postcode") is None


@settings(max_examples=100)
@given(
    st.text(st.characters(), max_size=60)
    | st.text("0123456789+()/ \ud800\udc00\0\u202e@.a", max_size=60)
)
def test_no_text_breaks_a_key(text: str) -> None:
    keys = keys_in(text)
    for found in (
        plain(text),
        *keys.emails,
        *keys.phones,
        name_key(text) or "",
        former_name_key(text) or "",
    ):
        found.encode()
    for key in keys.emails:
        assert keys_in(key).emails == {key}
    for key in keys.phones:
        assert re.fullmatch(r"\+[0-9]{7,15}", key)
        assert keys_in(key).phones == {key}


HOSTILE = ["7", "0770090012 ", "00 11 22 33 44 55 66 ", "\u0301\u0323", "a@b.", "\ufdfa"]


@pytest.mark.parametrize("piece", HOSTILE)
def test_the_keys_of_a_hostile_megabyte_are_read_in_a_moment(piece: str) -> None:
    """A megabyte of combining marks held the interpreter for a minute."""
    text = piece * (1_000_000 // len(piece))
    began_at = time.process_time()

    keys_in(text)
    name_key(text)

    assert time.process_time() - began_at < 0.05
