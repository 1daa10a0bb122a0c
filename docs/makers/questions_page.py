"""The pages of questions and macros, and dbt's sources, from examples/questions and a published file.

`make pages` writes them. The leads are the simulator's, so the results are always the same.
"""

import json
import tempfile
from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta
from itertools import product
from pathlib import Path
from typing import Any, Final

from docs.makers import ROOT
from docs.makers.reference_pages import FOLDER, MADE, Table, markdown_table, read_tables
from leads_pipeline.simulator.leads import LeadBook
from leads_pipeline.simulator.organisation import Organisation
from leads_pipeline_tests.support.house import LONDON, House

QUESTIONS: Final = ROOT / "examples" / "questions"
SOURCES: Final = ROOT / "examples" / "company" / "dbt" / "models" / "leads.yml"

# A Monday. Two weeks are over.
ASKED_ON: Final = date(2026, 11, 2)
_DAYS: Final = [ASKED_ON - timedelta(days=number) for number in range(14, 0, -1)]
# The portal refuses this window.
_FAILED: Final = (date(2026, 10, 20), "branch-102", "appraisal")
_ROWS_SHOWN: Final = 5
_BRANCHES: Final = "id,name,opening_hours\n101,York,Mon-Fri 09:00-17:30; Sat 10:00-16:00\n102,Leeds,Mon-Fri 09:00-18:00\n"

# A call of each macro.
_CALLS: Final = {
    "band_from": "band_from(347500, false)",
    "band_of": "band_of(300000, false)",
    "branch_of": "branch_of('branch-101')",
    "district_of": "district_of('YO1 7HH')",
    "local_time": "local_time(timestamptz '2026-07-01 10:00:00Z')",
    "market_of": "market_of(null, 'APPLICANT_INTENT_RENT')",
    "monthly_rent_of": "monthly_rent_of(300, 'per week')",
    "postcode_of": "postcode_of('yo1 7hh')",
    "readable": "readable('PROPERTY_TYPE_END_TERRACE')",
    "words_of": "words_of('PROPERTY_TYPE_END_TERRACE')",
}


def pages() -> dict[Path, str]:
    """Give the text of each page, by its path."""
    with tempfile.TemporaryDirectory() as folder:
        house = office(Path(folder) / "data")
        return {
            FOLDER / "questions.md": MADE + _questions(house),
            FOLDER / "macros.md": MADE + _macros(house),
            SOURCES: _sources(read_tables(house.file)),
        }


def office(folder: Path) -> House:
    """Give two branches with two weeks of leads, answers, a bank holiday and an inventory."""
    house = House(folder)
    house.scopes = ("branch-101", "branch-102")
    house.first_day = _DAYS[0]
    house.names = _BRANCHES
    house.bank_holidays = folder.parent / "bank_holidays.csv"
    house.bank_holidays.write_text("day,name\n2026-10-26,A holiday of the example\n")
    (folder / ".state").mkdir(parents=True)
    (folder / ".state" / "person_key").write_text("0" * 64)

    book = LeadBook(7, 8)
    leads: list[dict[str, Any]] = []
    for day in _DAYS:
        start = datetime.combine(day, time(), LONDON)
        end = start + timedelta(days=1)
        house.now = end + timedelta(hours=2)
        for branch, kind in product(Organisation(7, 2).branches, ("applicant", "appraisal")):
            scope = f"branch-{branch.id}"
            if (day, scope, kind) == _FAILED:
                house.fail(kind, day, scope)
                continue
            body = book.answer(kind, [branch], start, end, house.now.astimezone(UTC))
            landed = json.loads(body)[f"{kind}s"]
            house.land(kind, landed, day, scope)
            leads += landed

    answers = list(_answers(leads))
    house.answers(answers)
    _write_outcomes(folder, [lead_id for lead_id, _ in answers])
    listings = {one["listingDetails"]["id"]: one for one in leads if one.get("listingDetails")}
    items = [_item(one["listingDetails"]) for one in listings.values()]
    house.land_inventory({"Town": items[::3]})
    house.now = datetime.combine(ASKED_ON, time(8), LONDON)
    house.publish()
    return house


def _answers(leads: list[dict[str, Any]]) -> Iterator[tuple[str, str]]:
    """Give when the branches answered most of the leads."""
    for lead in leads:
        minutes = sum(lead["id"].encode()) % 120
        at = datetime.fromisoformat(lead["createdAt"])
        if minutes < 90 and at.year > 1:
            yield lead["id"], (at + timedelta(minutes=minutes)).isoformat()


def _write_outcomes(folder: Path, lead_ids: list[str]) -> None:
    """Write what came of leads, and what a product of the portal costs."""
    outcomes = ("rejected", "appointment", "instruction")
    rows = [f"{lead_id},{outcomes[sum(lead_id.encode()) % 3]},\n" for lead_id in lead_ids]
    (folder / "outcomes.csv").write_text("lead_id,outcome,at\n" + "".join(rows))
    (folder / "lead_prices.csv").write_text("portal_source,price\nprospectplus,45\n")


def _item(listing: dict[str, Any]) -> dict[str, Any]:
    address = listing["address"]
    where = {"nameNo": address["propertyNumberOrName"], "street": address["streetName"]}
    return {
        "id": listing["id"],
        "address": {**where, "town": address["townOrCity"], "postcode": address["postcode"]},
    }


def _questions(house: House) -> str:
    text = (
        "# Questions\n\n"
        "What analysts of agencies ask, with a query for each. The files are in `examples/questions/`: "
        "`duckdb -readonly data/leads.duckdb < examples/questions/week_on_week.sql` answers one. "
        "[Ask the data](../guides/ask-the-data.md#open-the-file) says how to open the file.\n\n"
        f"The results are of two branches with made-up leads, on {ASKED_ON:%A %-d %B %Y}, with at most "
        f"{_ROWS_SHOWN} rows. [Queries](queries.md) has more.\n"
    )
    for path in sorted(QUESTIONS.glob("*.sql")):
        comment, _, query = path.read_text(encoding="utf-8").partition("\n")
        while query.startswith("--"):
            more, _, query = query.partition("\n")
            comment += more.removeprefix("--")
        question, _, note = comment.removeprefix("-- ").partition("? ")
        text += f"\n## {question}?\n\n{note}\n\n```sql\n{query.strip()};\n```\n\n`{path.name}` gives:\n\n"
        columns, rows = answer(house, query)
        text += markdown_table(
            columns, [[_cell(value) for value in row] for row in rows[:_ROWS_SHOWN]]
        )
    return text


def answer(house: House, query: str) -> tuple[list[str], list[tuple[Any, ...]]]:
    """Give columns and rows of a query as of ASKED_ON."""
    rows = house.rows(query.replace("current_date", f"date '{ASKED_ON}'"))
    return [*rows[0]], [tuple(row.values()) for row in rows]


def _cell(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return "" if value is None else str(value)


def _macros(house: House) -> str:
    rows = []
    found = house.query(
        "select function_name, parameters, comment from duckdb_functions() "
        "where not internal and comment is not null order by function_name"
    )
    for name, parameters, comment in found:
        call = _CALLS[name]
        [(result,)] = house.query(f"select {call}")
        rows.append((f"`{name}({', '.join(parameters)})`", comment, f"`{call}`", _cell(result)))
    return (
        "# Macros\n\n"
        "Marts use them, and they are in `leads.duckdb` for your queries too. If the file is attached under another "
        "name, call them with it, such as `leads.market_of(…)`. Those that read a table, `branch_of` and `readable`, "
        "work only after `use leads`.\n\n"
        + markdown_table(("macro", "gives", "example", "result"), rows)
    )


def _sources(tables: list[Table]) -> str:
    """Give the tables and views with their columns, as dbt takes sources.

    JSON texts are YAML, too.
    """
    lines = [
        "# `make pages` makes this file, from the comments in leads.duckdb.",
        "sources:",
        "  - name: leads",
        "    database: leads",
        "    schema: main",
        "    tables:",
    ]
    for table in tables:
        lines.append(f"      - name: {table.name}")
        lines.append(f"        description: {json.dumps(table.comment, ensure_ascii=False)}")
        lines.append("        columns:")
        for column in table.columns:
            texts = {"name": column.name, "data_type": column.type, "description": column.comment}
            lines.append(f"          - {json.dumps(texts, ensure_ascii=False)}")
    return "\n".join(lines) + "\n"
