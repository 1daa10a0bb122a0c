"""The column `person` beside the keys that decide erasures: both are asked about the same people."""

import json
import re
from collections import defaultdict
from pathlib import Path

import duckdb
import pytest

import leads_pipeline
from leads_pipeline.features.privacy.contact_keys import keys_in

MACROS = Path(leads_pipeline.__file__).parent / "sql" / "macros" / "people.sql"
PEOPLE = Path(__file__).parents[1] / "features" / "privacy" / "people.json"

# A text that is one address or one number, with nothing else.
ALONE = {
    "email_of": r"[a-z]+(\.[a-z]+)?@[a-z]+\.example",
    "phone_of": r"(\+44|0044|0)?[ ()0-9.-]{10,16}",
}


def contacts(field: str) -> set[str]:
    """Each text that somebody gave as this field of the contact."""
    found = set()
    for person in json.loads(PEOPLE.read_text(encoding="utf-8")):
        for lead in person["leads"]:
            contact = lead["payload"].get("contact") if isinstance(lead["payload"], dict) else None
            text = contact.get(field) if isinstance(contact, dict) else None
            if isinstance(text, str):
                found.add(text)
    return found


@pytest.mark.parametrize(
    ("macro", "field", "what"),
    [("email_of", "email", "emails"), ("phone_of", "phoneNumber", "phones")],
)
def test_the_column_person_takes_no_two_people_for_one_and_knows_a_contact_that_stands_alone(
    macro: str, field: str, what: str
) -> None:
    """Among other words a contact makes another person here.

    That counts a person twice, and erases nobody.
    """
    keys_by_value = defaultdict[str, set[str]](set)
    values_by_key = defaultdict[str, set[str]](set)
    with duckdb.connect() as db:
        db.execute(MACROS.read_text(encoding="utf-8"))
        for text in contacts(field):
            [(value,)] = db.execute(f"select {macro}(?)", [text]).fetchall()
            keys = getattr(keys_in(text), what)
            if value is not None and len(keys) == 1:
                keys_by_value[value] |= keys
                if re.fullmatch(ALONE[macro], text):
                    values_by_key[min(keys)].add(value)

    assert [keys for keys in keys_by_value.values() if len(keys) > 1] == []
    assert len(values_by_key) > 50
    assert [values for values in values_by_key.values() if len(values) > 1] == []
