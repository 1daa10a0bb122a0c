"""The body of a push, cut into its leads.

Belongs here: which bodies are pushes. Doesn't: the id and the text of a lead (domain/bodies.py).
"""

import codecs

from leads_pipeline.domain.bodies import received
from leads_pipeline.domain.contract import LEAD_KINDS, LeadKind, ReceivedLead
from leads_pipeline.domain.json_pieces import list_parts, members_of, object_in, text_of
from leads_pipeline.errors import InvalidAnswerError


def read_push(body: bytes) -> tuple[tuple[LeadKind, ReceivedLead], ...]:
    """Cut a push into its leads, each with its kind and the exact text received.

    The body is a JSON object (specification, "Events"). It holds a lead under its kind's name,
    `{"applicant": {…}}`, or a list under the kind's list key, as an answer does. A name with null
    holds none. Each lead is judged as in cut_leads. Raises InvalidAnswerError for everything else;
    its message quotes nothing of the body.
    """
    leads: list[tuple[LeadKind, ReceivedLead]] = []
    has_leads = False
    body = body.removeprefix(codecs.BOM_UTF8)

    for key, start, end in members_of(body, object_in(body)):
        name = text_of(key)
        kind = next((kind for kind in LEAD_KINDS if name in (kind.name, kind.list_key)), None)
        if kind is None or body[start:end] == b"null":
            continue
        has_leads = True
        spans = (
            list_parts(kind.list_key, body, (start, end))
            if name == kind.list_key
            else [(start, end)]
        )
        for lead_start, lead_end in spans:
            lead = ReceivedLead(*received(body[lead_start:lead_end]))
            leads.append((kind, lead))

    if not has_leads:
        names = ", ".join(repr(kind.name) for kind in LEAD_KINDS)
        raise InvalidAnswerError(
            f"The body ({len(body)} bytes) is a JSON object with none of {names} in it.",
            reason="no lead",
        )

    return tuple(leads)
