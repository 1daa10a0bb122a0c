"""The other end of delivery: takes leads, checks their signatures, and keeps each version once.

    pip install standardwebhooks
    LEADS_DELIVERY_SECRET=whsec_… python crm_receiver.py

Set LEADS_DELIVERY_URL=http://127.0.0.1:8010 for the pipeline. On another machine, put TLS in front
(nginx, Caddy).
"""

import os
import sqlite3
from http.server import BaseHTTPRequestHandler, HTTPServer

from standardwebhooks import Webhook, WebhookVerificationError

webhook = Webhook(os.environ["LEADS_DELIVERY_SECRET"])
db = sqlite3.connect("crm.sqlite")
db.execute(
    "create table if not exists messages (id text primary key, lead_id text, occurred_at text, "
    "body text)"
)


class Receiver(BaseHTTPRequestHandler):
    """Answers 204 once a message is on the disk, 401 if its signature is wrong."""

    def do_POST(self) -> None:
        """Take a message."""
        body = self.rfile.read(int(self.headers["content-length"]))
        try:
            message = webhook.verify(body, dict(self.headers))
        except WebhookVerificationError:
            self.send_response(401)
        else:
            data = message["data"]
            row = (self.headers["webhook-id"], data["lead_id"], message["timestamp"], body.decode())
            with db:  # on the disk before it is acknowledged; a repeat changes nothing
                if message["type"] == "lead.erased":
                    db.execute("delete from messages where lead_id = ?", (data["lead_id"],))
                else:
                    db.execute("insert or ignore into messages values (?, ?, ?, ?)", row)
            self.send_response(204)
        self.end_headers()


HTTPServer(("127.0.0.1", int(os.environ.get("PORT", "8010"))), Receiver).serve_forever()
