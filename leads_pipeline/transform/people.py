"""People in leads.duckdb: keyed hashes of what tells them apart.

Belongs here: giving a connection the key. Doesn't: the key itself (storage/state.py), the hash (sql/macros/people.sql).
"""

from typing import Final

import duckdb

from leads_pipeline.transform.duck import macros

PERSON_MACROS: Final = macros("people")

_SHA256_BLOCK_BYTES: Final = 64


def set_person_key(db: duckdb.DuckDBPyConnection, key: bytes) -> None:
    """Make the macros that tell people apart, which live as long as the connection."""
    padded = key.ljust(_SHA256_BLOCK_BYTES, b"\0")
    for name, pad in (("person_inner_key", 0x36), ("person_outer_key", 0x5C)):
        db.execute(f"set variable {name} = $key", {"key": bytes(byte ^ pad for byte in padded)})
    db.execute(PERSON_MACROS)
