"""The tables that page and mail share: figures, branches, sources and others.

Belongs here: their columns and words. Doesn't: the figures (content.py), how they look (the
templates).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from leads_pipeline.features.report.content import (
    DASH,
    Content,
    change,
    duration,
    number,
    percent,
    share,
    sign_of,
)

# In place of a value that may be somebody's words.
_HIDDEN: Final = "\N{HORIZONTAL ELLIPSIS}"


class Row(NamedTuple):
    """A row: what it is of, a smaller note about that, and its figures.

    `bar` is its part of the longest bar.
    """

    label: str
    note: str
    cells: Sequence[str]
    bar: float | None = None


@dataclass(frozen=True, slots=True)
class Table:
    """A table.

    The first heading is that of the labels. `none` is what stands there if there is no row.
    """

    title: str
    intro: str
    none: str
    headings: Sequence[str]
    rows: Sequence[Row]

    def only(self, *headings: str) -> "Table":
        """Return it with these columns alone, as far as it has them."""
        first, *others = self.headings
        kept = [place for place, heading in enumerate(others) if heading in headings]
        rows = [Row(row.label, row.note, [row.cells[place] for place in kept]) for row in self.rows]
        return replace(self, headings=[first, *(others[place] for place in kept)], rows=rows)

    def first(self, count: int) -> "Table":
        """Return it with its first rows alone."""
        return replace(self, rows=self.rows[:count])


def figures(content: Content) -> Table:
    """List the figures of the period, each with its changes if they are known."""
    rows = []
    for figure in content.figures:
        changes = [_changed(figure.now, other) for other in (figure.before, figure.last_year)]
        rows.append(Row(figure.label, "", [number(figure.now), *changes]))
    if content.answers:
        answered = share(content.answers["answered"] / content.answers["leads"])
        rows.append(Row("of the leads are answered", "", [answered, "", ""]))
        rows.append(
            Row(
                "until half of those were answered",
                "",
                [duration(content.answers["minutes"]), "", ""],
            )
        )
    if content.closed:
        while_closed = share(content.closed["while_closed"] / content.closed["leads"])
        rows.append(
            Row("of the leads came while the branch was closed", "", [while_closed, "", ""])
        )
    if content.owners_to_call is not None:
        to_call = number(content.owners_to_call)
        rows.append(Row("owners to call: they asked for no valuation yet", "", [to_call, "", ""]))
    headings = ["", "figure", "on the week before", "on the same week of last year"]
    return Table("The week", "", "", headings, rows)


def _changed(now: int, before: int | None) -> str:
    if before is None:
        return ""
    part = percent(now, before)
    return f"{change(now, before)} ({part})" if part else change(now, before)


def branches(content: Content) -> Table:
    """List the branches by rank, as the statement orders them.

    Columns without any figure are left out.
    """
    columns = {
        "leads": [number(branch["leads"]) for branch in content.branches],
        "change": [change(branch["leads"], branch["before"]) for branch in content.branches],
        "last year": [change(branch["leads"], branch["last_year"]) for branch in content.branches],
        "people": [number(branch["people"]) for branch in content.branches],
        "viewings": [number(branch["viewings"]) for branch in content.branches],
        "valuations": [number(branch["valuations"]) for branch in content.branches],
        "answered": [share(branch["answered"]) for branch in content.branches],
        "answer": [duration(branch["minutes"]) for branch in content.branches],
    }
    # What isn't known is a dash in each column.
    shown = {heading: cells for heading, cells in columns.items() if {*cells} != {DASH}}

    rows = []
    for place, branch in enumerate(content.branches):
        cells = [column[place] for column in shown.values()]
        rows.append(Row(f"{place + 1}. {branch['name']}", "", cells))
    intro = (
        "Leads, with the change on the week before and on the same week of last year. Somebody who "
        "turns to two branches counts at both. The answer is the time until half of the answered "
        "leads had theirs."
    )
    return Table("Branches", intro, "No branch is configured.", ["branch", *shown], rows)


def sources(content: Content) -> Table:
    """List the sites and products of the portal."""
    rows = []
    for row in content.sources:
        before = row["before"] if content.is_compared else None
        # The source and the product of a lead may be somebody's words.
        site = row["source"].replace(_HIDDEN, "another site")
        product = row["portal_source"].replace(_HIDDEN, "another product")
        rows.append(Row(site, product, [number(row["leads"]), change(row["leads"], before)]))
    intro = "Leads by the site and the product of the portal that brought them."
    return Table("Sources", intro, "No leads in this week.", ["source", "leads", "change"], rows)


def listings(content: Content) -> Table:
    """List what is most asked about."""
    rows = []
    for row in content.listings:
        bedrooms = f"{row['bedrooms']} bed" if row["bedrooms"] else None
        words = [row["property_type"] or "listing", bedrooms, row["town"]]
        figures = [row["price"], number(row["leads"]), number(row["viewings"])]
        rows.append(
            Row(", ".join(filter(None, words)), f"{row['branch']}, {row['listing_id']}", figures)
        )
    headings = ["listing", "price", "leads", "viewings"]
    intro = "Leads, and how many of them ask for a viewing."
    return Table(
        "Listings most asked about", intro, "No lead about a listing in this week.", headings, rows
    )


def situations(content: Content) -> Table:
    """Count applicants by what they say of their own situation."""
    rows = []
    for row in content.situations:
        counts = [row["leads"], row["sales"], row["lettings"]]
        rows.append(
            Row(
                row["situation"],
                "",
                [*map(number, counts)],
                row["leads"] / content.situations[0]["leads"],
            )
        )
    intro = "Applicant leads by what people say of their own situation."
    headings = ["situation", "leads", "sales", "lettings"]
    return Table("Who asks", intro, "No applicant leads in this week.", headings, rows)


def prices(content: Content) -> Table:
    """Count applicants by the price of the listing."""
    most = max((row["leads"] for row in content.bands), default=0)
    rows = []
    for row in content.bands:
        band = f"{sign_of(row['currency'])}{row['price_band']}"
        rows.append(Row(band, row["market"], [number(row["leads"])], row["leads"] / most))
    intro = "Applicant leads by the price of the listing, or its rent for a month."
    none = "No lead about a listing with a price in this week."
    return Table("Demand by price", intro, none, ["price", "leads"], rows)
