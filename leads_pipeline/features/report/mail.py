"""The weekly mail: HTML that mail programs show, plain text, and the page attached.

Belongs here: which tables it has. Doesn't: the figures (content.py), when it is sent (mailing.py).
"""

from pathlib import Path
from typing import Final

from leads_pipeline.features.report.content import Content
from leads_pipeline.features.report.page import page_of
from leads_pipeline.features.report.tables import branches, figures, listings
from leads_pipeline.mail import Attachment, Mail
from leads_pipeline.warehouse.html import template_of

_LISTINGS_SHOWN: Final = 5


def mail_of(content: Content) -> Mail:
    """Return the mail of these figures."""
    most_asked = listings(content).only("price", "leads")
    tables = [figures(content), most_asked.first(_LISTINGS_SHOWN)]
    if content.branch is None:
        tables.insert(1, branches(content).only("leads", "change", "viewings", "answer"))

    html = template_of(Path(__file__).with_name("mail.html.jinja")).render(
        content=content, tables=tables
    )
    lines = [content.title]
    for table in tables:
        lines += ["", f"{table.title}: {', '.join(table.headings[1:])}"]
        lines += [f"{row.label}: {', '.join(filter(None, row.cells))}" for row in table.rows]
    lines += ["", "The page is attached. It opens in any browser."]
    page = Attachment(name=f"leads-{content.days['last_day']}.html", html=page_of(content))
    return Mail(content.title, "\n".join(lines), html, page)
