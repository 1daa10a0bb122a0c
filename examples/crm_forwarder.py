"""A small program between delivery and the API of a CRM: one PUT for each version of a lead, one DELETE for an erasure.

    pip install httpx standardwebhooks
    LEADS_DELIVERY_SECRET=whsec_… CRM_API=https://crm.example/api/enquiries CRM_TOKEN=… python crm_forwarder.py

Set LEADS_DELIVERY_URL=http://127.0.0.1:8010 for the pipeline. Change `to_crm` to what your CRM wants.
"""

import os
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import httpx
from standardwebhooks import Webhook, WebhookVerificationError

webhook = Webhook(os.environ["LEADS_DELIVERY_SECRET"])
crm = httpx.Client(headers={"authorization": f"Bearer {os.environ['CRM_TOKEN']}"}, timeout=10)


def to_crm(message: dict[str, Any]) -> bool:
    """Tell the CRM. Return if it took it. A PUT by the lead's id makes a repeat harmless."""
    lead = message["data"]
    address = f"{os.environ['CRM_API']}/{lead['lead_id']}"
    try:
        if message["type"] == "lead.erased":
            return crm.delete(address).status_code in (200, 204, 404)
        return crm.put(address, json=enquiry_of(lead)).is_success
    except httpx.TransportError:
        return False


def enquiry_of(lead: dict[str, Any]) -> dict[str, str]:
    """Return the lead as the CRM wants it."""
    return {
        "name": f"{lead['contact_first_name'] or ''} {lead['contact_last_name'] or ''}".strip(),
        "email": lead["contact_email"],
        "phone": lead["contact_phone_number"],
        "text": lead["message"],
    }


class Forwarder(BaseHTTPRequestHandler):
    """Answers 204 once the CRM has the lead, 502 if it doesn't take it, 401 if the signature is wrong."""

    def do_POST(self) -> None:
        """Take a message."""
        try:
            message = webhook.verify(self.rfile.read(int(self.headers["content-length"])), dict(self.headers))
        except WebhookVerificationError:
            self.send_response(401)
        else:
            self.send_response(204 if to_crm(message) else 502)
        self.end_headers()


HTTPServer(("127.0.0.1", int(os.environ.get("PORT", "8010"))), Forwarder).serve_forever()
