"""The pages of `docs/reference/`, made from the code.

`make pages` writes them. Pages there without the line `MADE` are written by hand.
"""

import json
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import Final

import click
import duckdb
from dagster import AssetKey, ScheduleDefinition, SensorDefinition

from docs.makers import ROOT
from leads_pipeline.cli import main
from leads_pipeline.definitions import build_definitions
from leads_pipeline.extensions import brought
from leads_pipeline.features.metrics.gauges import registry
from leads_pipeline.health.figures import Figures
from leads_pipeline.health.finding import Finding, Level
from leads_pipeline.raw.data_folder import DataFolder
from leads_pipeline.simulator.__main__ import main as simulate
from leads_pipeline.warehouse.marts import marts
from leads_pipeline_tests.support.house import House

FOLDER: Final = ROOT / "docs" / "reference"
MADE: Final = "<!-- `make pages` makes this page. Change the code, then run it. -->\n\n"

# The settings of an installation that has everything. Nobody answers at these addresses.
FULL: Final = {
    "LEADS_BASE_URL": "http://127.0.0.1:9",
    "LEADS_DATA_DIR": "data",
    "LEADS_BRANCH_IDS": "101,102",
    "LEADS_START_DATE": "2026-11-01",
    "INVENTORY_ADDRESSES": "Guildford",
    "LEADS_ALERT_WEBHOOK": "http://127.0.0.1:9",
    "LEADS_DELIVERY_URL": "http://127.0.0.1:9",
}

_EXAMPLES: Final = ROOT / "examples"
# A first query of each mart. `docs/reference/tables.md` shows them, and a test runs them.
_QUERIES = (_EXAMPLES / "first_queries.sql").read_text(encoding="utf-8")
QUERIES: Final = dict(re.findall(r"-- (mart_\w+)\n(.*?;)\n", _QUERIES, re.DOTALL))


def pages() -> dict[Path, str]:
    """Give the text of each page, by its path."""
    with tempfile.TemporaryDirectory() as folder:
        house = House(Path(folder) / "data")
        house.land("applicant", [])
        house.publish()
        tables = read_tables(house.file)
    texts = {
        "commands.md": _commands(),
        "exit-codes.md": _exit_codes(),
        "metrics.md": _metrics(),
        "assets.md": _assets(),
        "tables.md": _tables(tables),
    }
    return {FOLDER / name: MADE + text for name, text in texts.items()} | {
        FOLDER / "leads.schema.json": json.dumps(contract(tables), indent=2) + "\n"
    }


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Give a table in Markdown."""
    cells = (
        " ".join(f"| {cell.replace('|', chr(92) + '|')}" for cell in row) + " |\n" for row in rows
    )
    return f"| {' | '.join(head)} |\n|{'---|' * len(head)}\n{''.join(cells)}"


# --- commands -------------------------------------------------------------------------------------


def _commands() -> str:
    text = (
        "# Commands\n\nEvery command reads `.env` in the working directory, and the environment. "
        "The environment wins. `leads-pipeline COMMAND --help` shows the same as this page.\n\n"
        'Completion in bash: `eval "$(_LEADS_PIPELINE_COMPLETE=bash_source leads-pipeline)"`. In zsh, write '
        "`zsh_source`.\n"
    )
    for path, command in _each_command(main, "leads-pipeline"):
        if command is not main and not command.hidden:
            text += _command(path, simulate if path == "leads-pipeline simulate" else command)
    return text


def _each_command(command: click.Command, name: str) -> Iterator[tuple[str, click.Command]]:
    yield name, command
    if not isinstance(command, click.Group):
        return

    context = click.Context(command)
    for inner in sorted(command.list_commands(context)):
        if one := command.get_command(context, inner):
            yield from _each_command(one, f"{name} {inner}")


def _command(path: str, command: click.Command) -> str:
    context = click.Context(command, info_name=path, **command.context_settings)
    usage = " ".join([path, *command.collect_usage_pieces(context)])
    paragraphs = (" ".join(part.split()) for part in (command.help or "").split("\n\n"))
    text = (
        f"\n## {path.removeprefix('leads-pipeline ')}\n\n    {usage}\n\n"
        + "\n\n".join(paragraphs)
        + "\n"
    )
    options = [parameter.get_help_record(context) for parameter in command.get_params(context)]
    rows = [
        (f"`{names}`", meaning) for names, meaning in filter(None, options) if "--help" not in names
    ]
    text += "\n" + markdown_table(("option", "meaning"), rows) if rows else ""
    epilog = (command.epilog or "").replace("\b\n", "").strip()
    return text + (f"\n```text\n{epilog}\n```\n" if epilog else "")


def _exit_codes() -> str:
    rows: list[tuple[str, str]] = []
    for path, command in _each_command(main, "leads-pipeline"):
        text = " ".join((command.help or "").split())
        name = path.removeprefix("leads-pipeline ")
        sentences = re.findall(r"Exit code (.*?\.)(?=\s|$)", text)
        rows.extend((f"`{name}`", sentence) for sentence in sentences)

    own = markdown_table(("command", "exit code"), rows)
    return f"# Exit codes\n\n{_EXIT_CODES}\n## By command\n\n{own}"


_EXIT_CODES: Final = """\
| code | means |
|---|---|
| 0 | Everything that was asked for is done, and nothing is wrong. |
| 1 | A part of it is not done, or something is wrong. The output says what. |
| 2 | Nothing was done, or it can't tell: an argument, a setting or the folder is wrong. |
| 130 | Ctrl-C stopped the command before its end. `dev`, `serve` and `simulate` exit with 0. |
"""


# --- metrics --------------------------------------------------------------------------------------


def _metrics() -> str:
    moment = datetime(2026, 11, 19, tzinfo=UTC)
    finding = Finding(Level.HINT, "", "", key="disk")
    one = {"": 1}
    with tempfile.TemporaryDirectory() as folder:
        data = DataFolder.at(Path(folder))
        of_features = tuple(
            replace(of_feature(data), by_state=one, by_place={"": one}, last_at=moment)
            for of_feature in brought("figures")
        )
    figures = Figures(
        moment, one, one, moment, moment, moment, moment, moment, one, 1, (finding,), of_features
    )
    keys = figures.as_json()
    rows = []
    for metric in registry(lambda: figures).collect():
        labels = sorted({label for sample in metric.samples for label in sample.labels})
        key = metric.name.removeprefix("leads_pipeline_").replace("_timestamp_seconds", "_at")
        key = key if key in keys else f"is_{key}"
        assert key in keys
        rows.append(
            (
                f"`{metric.name}`",
                ", ".join(f"`{label}`" for label in labels),
                f"`{key}`",
                metric.documentation,
            )
        )
    return (
        "# Metrics\n\n`leads-pipeline metrics --port 9464` serves these gauges at `/metrics`. Without a port it prints "
        "them once, for the textfile collector of the node exporter. `deploy/grafana.json` is a dashboard of them.\n\n"
        + markdown_table(("metric", "label", "key of `status --json`", "meaning"), rows)
        + "\n`leads-pipeline status --json` prints the same figures, with moments in UTC. Each entry of `findings` has "
        "`key`, `level`, `message`, `since`, `what_to_do`, `link` and `may_pass`.\n\n"
        "Things that never happened have no value, and are null in JSON. If the figures can't be read, "
        "`leads_pipeline_well` is there alone, and is 0.\n"
    )


# --- Dagster --------------------------------------------------------------------------------------


def _assets() -> str:
    definitions = build_definitions(FULL)
    graph = definitions.resolve_asset_graph()
    repository = definitions.get_repository_def()

    def parents(key: AssetKey) -> str:
        return ", ".join(
            f"`{parent.to_user_string()}`" for parent in sorted(graph.get(key).parent_keys)
        )

    text = (
        "# Assets\n\nThe Dagster UI shows these assets, checks, schedules and sensors.\n\n"
        "Each publication records how many rows a table has (`dagster/row_count`). Views aren't counted.\n"
    )
    keys = sorted(
        graph.get_all_asset_keys(), key=lambda key: (graph.get(key).group_name or "", key)
    )
    for group, members in groupby(keys, lambda key: graph.get(key).group_name):
        rows = [
            (f"`{key.to_user_string()}`", _first_line(graph.get(key).description), parents(key))
            for key in members
        ]
        text += f"\n## Group {group}\n\n" + markdown_table(("asset", "is", "made from"), rows)
    checks = []
    for key in sorted(graph.asset_check_keys, key=lambda key: (key.asset_key, key.name)):
        should_hold = _first_line(graph.get_check_spec(key).description)
        checks.append((f"`{key.asset_key.to_user_string()}`", f"`{key.name}`", should_hold))
    text += "\n## Checks\n\n" + markdown_table(("asset", "check", "should hold"), checks)

    triggers = [
        _trigger(one, f"`{one.cron_schedule}`", [one.job_name])
        for one in sorted(repository.schedule_defs, key=lambda one: one.name)
    ]
    for sensor in sorted(repository.sensor_defs, key=lambda one: one.name):
        when = f"every {sensor.minimum_interval_seconds} seconds"
        triggers.append(_trigger(sensor, when, [target.job_name for target in sensor.targets]))
    text += "\n## Schedules and sensors\n\n" + markdown_table(
        ("name", "when", "state", "starts", "does"), triggers
    )
    return text + (
        "\nSchedules count in `LEADS_TIMEZONE`. In somebody else's Dagster, all are off until you switch them on.\n"
    )


def _trigger(
    one: ScheduleDefinition | SensorDefinition, when: str, jobs: list[str]
) -> tuple[str, ...]:
    state = "on" if one.default_status.value == "RUNNING" else "off until you switch it on"
    starts = ", ".join(f"`{job}`" for job in jobs)
    return f"`{one.name}`", when, state, starts, _first_line(one.description)


def _first_line(text: str | None) -> str:
    return " ".join((text or "").split("\n\n", maxsplit=1)[0].split())


# --- tables ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Column:
    """A column of a table with its comment."""

    name: str
    type: str
    comment: str


@dataclass(frozen=True)
class Table:
    """A table or view of leads.duckdb with its comments."""

    name: str
    comment: str
    columns: tuple[Column, ...]


def read_tables(file: Path) -> list[Table]:
    """The tables and views that analysts see, with the comments that the file carries."""
    with duckdb.connect(file, read_only=True) as db:
        tables = db.sql(
            "select table_name, comment from duckdb_tables() where schema_name = 'main' union all "
            "select view_name, comment from duckdb_views() where schema_name = 'main' and not "
            "internal order by 1"
        ).fetchall()
        columns = db.sql(
            "select table_name, column_name, replace(lower(data_type), 'timestamp with time zone', "
            "'timestamptz'), comment from duckdb_columns() where schema_name = 'main' order by "
            "table_name, column_index"
        ).fetchall()
    by_table: Mapping[str, list[Column]] = {
        name: [Column(*row[1:]) for row in rows]
        for name, rows in groupby(columns, lambda row: row[0])
    }
    return [Table(name, comment, tuple(by_table[name])) for name, comment in tables]


# docs/tables.js puts a search field below the title.
_HEAD: Final = (
    "# Tables and marts\n\nThe tables and views of `leads.duckdb`: [of leads](#tables-of-leads), "
    "[marts](#marts), and [of the pipeline](#tables-of-the-pipeline). The file carries the same "
    "comments: `select * from duckdb_columns()`. Everything in the schema `pipeline`, except `objected`, "
    "is internal and changes without notice. [leads.schema.json](leads.schema.json) has the same for programs, "
    "as a JSON Schema of the rows, with DuckDB's types as `x-duckdb-type`. Releases may add tables and columns.\n\n"
    "![The tables, and the columns that join them](tables.svg)\n"
)
_OF_LEADS: Final = (
    "\n## Tables of leads\n\nThe leads with names, addresses and messages, their lists, and the rows of your own "
    "files that name a lead. All are personal data.\n"
)
_OF_MARTS: Final = (
    "\n## Marts\n\nMarts hold figures and keyed hashes of people, and no name, e-mail address or telephone number. "
    "Marts with `person` or `lead_id` are personal data under UK GDPR. "
    "[Ask the data](../guides/ask-the-data.md) explains `person` and the ways to query.\n"
)
_OF_THE_PIPELINE: Final = (
    "\n## Tables of the pipeline\n\nBranches, days, the inventory, what has landed, and what is new in the "
    "portal's answers. No row is of a person.\n"
)


def _tables(tables: Sequence[Table]) -> str:
    found = [table for table in tables if table.name.startswith("mart_")]
    others = [table for table in tables if table not in found]
    of_leads = [_table(table) for table in others if _has_lead_id(table)]
    of_the_pipeline = [_table(table) for table in others if not _has_lead_id(table)]
    parts = [_HEAD, _OF_LEADS, *of_leads, _OF_MARTS, _marts(found)]
    return "".join([*parts, _OF_THE_PIPELINE, *of_the_pipeline])


def _has_lead_id(table: Table) -> bool:
    return any(column.name == "lead_id" for column in table.columns)


def _table(table: Table) -> str:
    end = "" if table.comment.endswith((".", "?")) else "."
    rows = ((f"`{one.name}`", f"`{one.type}`", one.comment or "") for one in table.columns)
    return f"\n### {table.name}\n\n{table.comment}{end}\n\n" + markdown_table(
        ("column", "type", "meaning"), rows
    )


def _marts(tables: Sequence[Table]) -> str:
    by_day = {mart.name for mart in marts() if mart.is_by_day}
    questions = {
        path.stem: path.read_text(encoding="utf-8") for path in _EXAMPLES.glob("questions/*.sql")
    }
    text = ""
    for table in tables:
        kind = "table" if table.name in by_day else "view"
        text += _table(table) + f"\nA {kind}. A first query:\n"
        text += f"\n```sql\n{QUERIES[table.name]}\n```\n"
        asked = sorted(
            name for name, sql in questions.items() if re.search(rf"\b{table.name}\b", sql)
        )
        if asked:
            text += f"\nReady questions: {', '.join(f'`examples/questions/{name}.sql`' for name in asked)}.\n"
    return text


# What becomes of DuckDB's types in JSON.
_JSON_TYPES: Final = {
    "varchar": "string",
    "varchar[]": "array",
    "boolean": "boolean",
    "integer": "integer",
    "bigint": "integer",
    "hugeint": "integer",
    "double": "number",
    "decimal(18,2)": "number",
    "date": "string",
    "timestamptz": "string",
    "uuid": "string",
    "json": "object",
}
_FURTHER: Final[Mapping[str, Mapping[str, object]]] = {
    "varchar[]": {"items": {"type": "string"}},
    "date": {"format": "date"},
    "timestamptz": {"format": "date-time"},
    "uuid": {"format": "uuid"},
}


def contract(tables: Sequence[Table]) -> dict[str, object]:
    """A JSON Schema of all rows, by table."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$comment": "Made by `make pages`.",
        "title": "The tables and marts of leads.duckdb",
        "type": "object",
        "properties": {table.name: _rows_of(table) for table in tables},
    }


def _rows_of(table: Table) -> dict[str, object]:
    row = {
        "type": "object",
        "properties": {column.name: _value_of(column) for column in table.columns},
        "required": [column.name for column in table.columns],
    }
    return {"description": table.comment, "type": "array", "items": row}


def _value_of(column: Column) -> dict[str, object]:
    return {
        "description": column.comment,
        "type": [_JSON_TYPES[column.type], "null"],
        **_FURTHER.get(column.type, {}),
        "x-duckdb-type": column.type,
    }
