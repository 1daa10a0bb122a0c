"""The keys that a text holds: an address, a number or a name in whatever people write into a field."""

import re
import time
from collections.abc import Callable

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from leads_pipeline.features.privacy.contact_keys import (
    former_name_key,
    keys_in,
    name_key,
    plain,
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
@example("7100430000")
def test_the_form_of_a_number_never_changes_its_key(
    form: Callable[[str], str], digits: str
) -> None:
    assert keys_in(form(digits)).phones == {f"+44{digits}"}


@settings(max_examples=300)
@given(field=FIELDS_WITH_NUMBER)
def test_a_number_is_read_among_words_prices_times_bedrooms_and_a_second_number(
    field: tuple[str, set[str]],
) -> None:
    """Fault 92. people.json has its examples."""
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


@pytest.mark.parametrize("local", ["jane#bob", 'jane"bob"', "jan\u0435bob", "jane\u4e2d\u6587"])
def test_the_end_of_a_local_part_is_never_a_key(local: str) -> None:
    """It would be a stranger's."""
    assert keys_in(f"{local}@people.example").emails == frozenset()


@settings(max_examples=100)
@given(
    st.text(st.characters(), max_size=60)
    | st.text("0123456789+()/ \ud800\udc00\0\u202e@.a", max_size=60)
    | st.builds("{}{}{}".format, st.text(max_size=20), EMAILS, st.text(max_size=20))
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


HOSTILE = ["7", "00 11 22 33 44 55 66 ", "\u0301\u0323", "a@b."]


@pytest.mark.parametrize("piece", HOSTILE)
def test_the_keys_of_a_hostile_megabyte_are_read_in_a_moment(piece: str) -> None:
    """A megabyte of combining marks held the interpreter for a minute."""
    text = piece * (1_000_000 // len(piece))
    began_at = time.process_time()

    keys_in(text)
    name_key(text)

    assert time.process_time() - began_at < 0.05
