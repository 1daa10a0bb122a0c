"""A version as the message that is posted, by the Standard Webhooks specification.

Belongs here: the body, its id and its signature. Doesn't: sending it (sending.py).
"""

import base64
import hashlib
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final
from zoneinfo import ZoneInfo

import msgspec
from standardwebhooks import Webhook

from leads_pipeline.domain.contract import ChildTable, LeadKind
from leads_pipeline.errors import SettingsError
from leads_pipeline.features.delivery.ledger import Version
from leads_pipeline.raw.rows import LandedVersion, moment_of
from leads_pipeline.warehouse.typed_rows import EXTRA, PROBLEMS

_ENCODER: Final = msgspec.json.Encoder(decimal_format="number")

# The specification allows these lengths of a secret.
_SECRET_BYTES: Final = range(24, 65)


def signer(secret: str) -> Webhook:
    """Return what signs with a secret. Raises SettingsError, without the secret, if it can't be one.

    The library decodes as much of a text as it can, so a bad secret would sign with too few bytes.
    """
    prefix, _, text = secret.strip().rpartition("whsec_")
    try:
        key = base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except ValueError:
        key = b""
    if prefix not in ("", "v1,") or len(key) not in _SECRET_BYTES:
        raise SettingsError(
            "LEADS_DELIVERY_SECRET isn't 24 to 64 bytes in Base64. Make one: `echo \"whsec_$(openssl rand -base64 "
            '32)"`. The endpoint needs the same.'
        )
    return Webhook(key)


def webhook_id(version: Version) -> str:
    """Return the id of the message. Each attempt, today's or a later one's, has the same."""
    text = "\0".join((version.kind, version.lead_id, version.version))
    return f"msg_{hashlib.sha256(text.encode()).hexdigest()[:32]}"


def headers_of(signs: Webhook, version: Version, body: bytes, now: datetime) -> dict[str, str]:
    """Return the headers of an attempt. Receivers refuse a timestamp that is older than five minutes."""
    at, id_ = now.astimezone(UTC), webhook_id(version)
    return {
        "content-type": "application/json",
        "webhook-id": id_,
        "webhook-timestamp": str(int(at.timestamp())),
        "webhook-signature": signs.sign(id_, at, body.decode()),
    }


def body_of(
    kind: LeadKind,
    version: Version,
    landed: LandedVersion,
    lead: Mapping[str, Any],
    zone: ZoneInfo,
    *,
    is_update: bool,
) -> bytes:
    """Return the body. `lead` is the landed version as `typed_leads` returns it.

    The names are those of the columns in leads.duckdb. `payload` is what the portal sent.
    """
    occurred_at = moment_of(max(landed.number, landed.corrected_at))
    columns = _columns(kind, lead)
    created_at = columns["created_at"]
    data = {
        "kind": kind.name,
        "lead_id": version.lead_id,
        "version": version.version,
        "occurred_at": occurred_at,
        "lead_day": created_at.astimezone(zone).date() if created_at else version.day,
        "scope": version.scope,
        "source": landed.source,
        **columns,
        **{
            child.name: [_columns(child, element) for element in _member(lead, child.path) or ()]
            for child in kind.children
        },
        "payload": _payload(landed.payload),
    }
    what = "lead.updated" if is_update else "lead.created"
    return _ENCODER.encode({"type": what, "timestamp": occurred_at, "data": data})


def _columns(of: LeadKind | ChildTable, values: Mapping[str, Any]) -> dict[str, Any]:
    columns = {field.column: _member(values, field.path) for field in of.fields}
    extra = values[EXTRA]
    return columns | {PROBLEMS: values[PROBLEMS], EXTRA: msgspec.Raw(extra.encode()) if extra else None}


def _member(values: Mapping[str, Any], path: str) -> Any:
    for step in path.split("."):
        values = values[step]
    return values


def _payload(text: str) -> Any:
    """As JSON if it is, else as a string."""
    try:
        msgspec.json.decode(text, type=msgspec.Raw)
    except (ValueError, RecursionError):
        return text
    return msgspec.Raw(text.encode())
