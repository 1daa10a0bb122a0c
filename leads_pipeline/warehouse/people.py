"""People in the warehouse: keyed hashes of what tells them apart.

Belongs here: the macros of that hash. Doesn't: the key itself (lake/state.py).
"""

from typing import Final

import duckdb

REMOVED_PERSON: Final = "removed_person_of"

# HMAC-SHA256 (RFC 2104), its two padded keys as variables: bound, so that neither is in a statement or in the file.
# 128 of its bits are a UUID, which DuckDB stores and groups by like a number. As DuckDB can't call it for a part of
# the rows, NULL goes through it.
PERSON_MACROS: Final = (
    "email_of(v) as nullif(lower(trim(v)), '')",
    # 07700 900123, +44 7700 900123 and 0044 (0)7700 900123 are one number.
    """
    phone_of(v) as nullif(
        regexp_replace(regexp_replace(v, '[^0-9]', '', 'g'), '^(00)?440?|^0', ''), ''
    )""",
    """
    keyed_hash(v) as sha256(
        getvariable('person_outer_key') || unhex(sha256(getvariable('person_inner_key') || encode(v)))
    )[:32]::uuid""",
    # Whose address was cut out is known by the hash that stands in its place.
    f"{REMOVED_PERSON}(v) as try_cast(regexp_extract(v, '^([0-9a-f-]{{36}})@removed[.]invalid$', 1) as uuid)",
    f"""
    person_of(email, phone) as coalesce(
        {REMOVED_PERSON}(email), keyed_hash(coalesce(email_of(email), phone_of(phone)))
    )""",
)
PERSON_OF_LEAD: Final = "person_of(staged.contact_email, staged.contact_phone_number) as person"

_SHA256_BLOCK_BYTES: Final = 64


def set_person_key(db: duckdb.DuckDBPyConnection, key: bytes) -> None:
    """Make the macros that tell people apart, which live as long as the connection."""
    padded = key.ljust(_SHA256_BLOCK_BYTES, b"\0")
    for name, pad in (("person_inner_key", 0x36), ("person_outer_key", 0x5C)):
        db.execute(f"set variable {name} = $key", {"key": bytes(byte ^ pad for byte in padded)})
    for macro in PERSON_MACROS:
        db.execute(f"create or replace temp macro {macro}")
