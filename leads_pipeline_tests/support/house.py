"""The pipeline as its tests use it: leads come in, one publication follows, and leads.duckdb says
what there is.

Belongs here: the only way of the tests to the rooms that a publication goes through, in this
process. When a room is rebuilt, this file changes and the tests don't.
"""

import copy
import hashlib
import json
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any, Final, Self
from zoneinfo import ZoneInfo

import duckdb

from leads_pipeline.domain.bodies import cut_leads
from leads_pipeline.domain.contract import lead_kind
from leads_pipeline.domain.window import Scope, Window
from leads_pipeline.features.backup.restoring import end_restore, restore
from leads_pipeline.features.backup.snapshots import back_up
from leads_pipeline.features.inventory.contract import read_inventory_page
from leads_pipeline.features.inventory.searches import Inventory
from leads_pipeline.features.loading_ahead.helper import follow
from leads_pipeline.features.loading_ahead.pull import WINDOWS_MIN
from leads_pipeline.features.privacy import requests
from leads_pipeline.features.privacy.identity import Person, lead_key
from leads_pipeline.features.privacy.retain import cut_days, due_before
from leads_pipeline.features.privacy.search import Found
from leads_pipeline.features.privacy.search import find as find_person
from leads_pipeline.features.privacy.suppression import Action
from leads_pipeline.features.publication_steps import bring_up_to_date
from leads_pipeline.features.pushes.body import read_push
from leads_pipeline.features.pushes.placement import Placement
from leads_pipeline.features.report.content import read_content
from leads_pipeline.features.report.page import page_of, write_report
from leads_pipeline.health.facts import Facts
from leads_pipeline.health.finding import Finding, all_finders, find
from leads_pipeline.raw.branches import read_branches
from leads_pipeline.raw.data_folder import DataFolder
from leads_pipeline.raw.names import Place
from leads_pipeline.raw.store import Store
from leads_pipeline.settings import Settings
from leads_pipeline.warehouse.checks import checks, problems
from leads_pipeline.warehouse.publication import PublicationSettings
from leads_pipeline.warehouse.published import LeadsFile
from leads_pipeline_tests.support.analyst import query

DAY: Final = date(2026, 11, 19)
NEXT_DAY: Final = date(2026, 11, 20)
LONDON: Final = ZoneInfo("Europe/London")
# Where it is noon, so that what goes by the computer's clock doesn't depend on the hour.
AT_NOON: Final = ZoneInfo(f"Etc/GMT{datetime.now(UTC).hour - 12:+}")

# Both days are over, and the portal still has them.
NOW: Final = datetime(2026, 11, 21, 6, tzinfo=UTC)

# Columns that differ from one publication of the same leads to the next: moments of requests and
# publications, and what they are numbered by.
OF_THE_RUN: Final = {
    "fetched_at",
    "looked_at",
    "landed_at",
    "last_looked_at",
    "sequence",
    "published_in",
    "attempts",
    "minutes_p50",
    "minutes_p95",
    "last_error",
}

# A lead as what becomes JSON, or as its exact text.
Lead = str | Mapping[str, Any]
Row = dict[str, Any]


class House:
    """One data folder with two branches. Each answer and each delivery takes a minute of its clock.

    What a test may set: `now`, the moment of the next thing that happens; `zone`, `scopes`,
    `first_day`, `names` (a CSV text of branches), `marts`, `bank_holidays`, `tables_as` and
    `bucket`, which are settings.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.now = NOW
        self.zone = LONDON
        self.scopes: tuple[str, ...] = ("branch-101", "branch-102")
        self.first_day = DAY
        self.names = ""
        # LEADS_MARTS_DIR
        self.marts: Path | None = None
        # LEADS_BANK_HOLIDAYS_FILE
        self.bank_holidays: Path | None = None
        # LEADS_TABLES
        self.tables_as = "parquet"
        # LEADS_STORE
        self.bucket: Store | None = None
        self.keep_days: int | None = None

    # --- leads come in ----------------------------------------------------------------------------

    def land(
        self, kind: str, leads: Iterable[Lead], day: date = DAY, scope: str = "branch-101"
    ) -> None:
        """Pull a window. The portal answers with these leads."""
        of = lead_kind(kind)
        body = _answer(kind, leads)
        moment = self._tick()
        window = Window.of(day, Scope.parse(scope), self.zone)
        received = cut_leads(of, body).leads

        self.data.raw.land(of, window, received, moment, hashlib.sha256(body).hexdigest(), "run")

    def fail(self, kind: str, day: date = DAY, scope: str = "branch-101") -> None:
        """Pull a window. The portal refuses it."""
        self._tick()
        place = Place(lead_kind(kind), day, scope)
        self.data.raw.fail(place, "refused", "The portal refused it.", is_permanent=True)

    def push(self, kind: str, *leads: Lead) -> None:
        """Have the portal deliver leads of its own accord. They are acknowledged."""
        moment = self._tick()
        placement = Placement([*map(Scope.parse, self.scopes)], self.zone)
        for of, lead in read_push(_answer(kind, leads)):
            self.data.raw.add(placement.of(of, lead, moment), [lead], moment)

    def land_inventory(self, places: Mapping[str, Sequence[Lead]]) -> None:
        """Pull today's inventory. The portal finds these items for each place."""
        found = {
            place: read_inventory_page(_body("items", items)).items
            for place, items in places.items()
        }
        Inventory.of(self.data).land(self.today, found, self._tick())

    def answers(self, rows: Iterable[Sequence[str]]) -> None:
        """Write the user's own list of when leads were answered."""
        lines = ["lead_id,answered_at", *(",".join(row) for row in rows)]
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "answers.csv").write_text("\n".join(lines))

    def later(self, **units: float) -> None:
        """Set the clock forward: `later(hours=1)`."""
        self.now += timedelta(**units)

    @property
    def today(self) -> date:
        """The local day."""
        return self.now.astimezone(self.zone).date()

    def _tick(self) -> datetime:
        moment = self.now
        self.later(minutes=1)
        return moment

    def load_ahead(self, *landings: Callable[[], object]) -> None:
        """Have a pull's helper load ahead in rounds.

        Before each look of the helper, one of these happens.
        """

        def nothing() -> None:
            """So it loads the last one, too."""

        left = [*landings, nothing]

        def has_ended(_: float) -> bool:
            if not left:
                return True
            left.pop(0)()
            return False

        follow(self.data, self.zone, WINDOWS_MIN, has_ended, clock=lambda: self.now, leads_min=1)

    # --- what an analyst finds --------------------------------------------------------------------

    def publish(self) -> None:
        """Bring leads.duckdb up to date with all that came in."""
        self.folder.mkdir(parents=True, exist_ok=True)
        settings = self.settings()
        wanted = PublicationSettings(
            [*map(Scope.parse, self.scopes)],
            self.first_day,
            self.zone,
            read_branches(settings.branches_file),
            settings,
        )

        assert bring_up_to_date(self.data, wanted, self.now).problems == {}

    def findings(self, name: str) -> list[Finding]:
        """What the finder of that name finds."""
        return find(self.facts(), [all_finders()[name]])

    def facts(self, **variables: str) -> Facts:
        """What findings are made from. The variables are settings besides the house's."""
        return Facts(self.settings(**variables), self.data, self.now)

    def settings(self, **variables: str) -> Settings:
        """The house's settings, with these variables besides."""
        names = self.folder.parent / "branches.csv"
        if self.names:
            names.write_text(self.names, encoding="utf-8")
        return Settings.from_variables(
            {
                "LEADS_DATA_DIR": str(self.folder),
                "LEADS_SCOPES": ",".join(self.scopes),
                "LEADS_START_DATE": str(self.first_day),
                "LEADS_TIMEZONE": self.zone.key,
                "DAGSTER_HOME": "/no-dagster",  # it takes no % in a path
                "LEADS_TABLES": self.tables_as,
                "LEADS_MARTS_DIR": str(self.marts or ""),
                "LEADS_BANK_HOLIDAYS_FILE": str(self.bank_holidays or ""),
                "LEADS_BRANCHES_FILE": str(names) if self.names else "",
                **variables,
            }
        )

    @property
    def file(self) -> Path:
        """The published file."""
        return self.folder / "leads.duckdb"

    def query(self, sql: str, *parameters: object) -> list[tuple[Any, ...]]:
        """The rows of a query. A new reader opens the published file."""
        return query(self.file, sql, *parameters)

    def rows(self, sql: str, *parameters: object) -> list[Row]:
        """The rows of a query, by column."""
        with self._reader() as db:
            return _rows(db.execute(sql, parameters))

    def leads(self, kind: str) -> dict[str, Row]:
        """The published leads of a kind by their id. Each id is there once."""
        rows = self.rows(f"from {kind}_leads")
        found = {row["lead_id"]: row for row in rows}
        assert len(found) == len(rows)
        return found

    def report(self, scope: str | None = None) -> str:
        """The page of figures for people, of what is published, or of one branch."""
        with LeadsFile(self.data).reading() as db:
            if scope:
                return page_of(read_content(db, scope))
            return write_report(db, self.folder).read_text(encoding="utf-8")

    def tables(self) -> dict[str, list[Row]]:
        """All published tables with their rows in order, without the columns of the run."""
        found = {}
        with self._reader() as db:
            tables = "select table_name from information_schema.tables where table_schema = 'main'"
            for (table,) in db.execute(tables).fetchall():
                rows = _rows(db.execute(f'from "{table}"'))
                for row in rows:
                    for column in OF_THE_RUN & row.keys():
                        del row[column]
                found[table] = sorted(rows, key=repr)
        return found

    def raw(self, kind: str) -> list[tuple[str, str]]:
        """Every version of every lead in the raw files, as id and exact text, oldest first."""
        files = str(self.folder / "raw" / f"{kind}_leads" / "**" / "*.parquet")
        with duckdb.connect() as db:
            try:
                return db.execute(
                    "select lead_id, payload from read_parquet(?, hive_partitioning = false, "
                    "union_by_name = true) order by number",
                    [files],
                ).fetchall()
            except duckdb.IOException:  # no file yet
                return []

    @contextmanager
    def _reader(self) -> Iterator[duckdb.DuckDBPyConnection]:
        with duckdb.connect(str(self.file), read_only=True) as db:
            db.execute("set TimeZone = 'UTC'")
            yield db

    # --- people, and what outlives the disk -------------------------------------------------------

    def find(self, **person: str | Sequence[str]) -> list[tuple[str, str, str]]:
        """Find a person by `email`, `phone`, `name`, `lead` or `postcode`: `theirs` or `look`, kind
        and id of leads.
        """
        found = find_person(self.data, _person(person))
        return sorted(
            ("theirs" if lead.is_theirs else "look", lead.kind, lead.lead_id)
            for lead in found.leads
        )

    def erase(self, **person: str | Sequence[str]) -> None:
        """Erase a person, given as in `find`, and publish."""
        self._request(Action.ERASE, person)

    def object_(self, **person: str | Sequence[str]) -> None:
        """Note that a person objects to marketing, and publish."""
        self._request(Action.OBJECT, person)

    def restrict(self, **person: str | Sequence[str]) -> None:
        """Set the leads of a person aside, and publish."""
        self._request(Action.RESTRICT, person)

    def retain(self, days: int) -> None:
        """Delete the personal fields of leads that are older than so many days, and publish."""
        self.cut(days)
        self.publish()

    def cut(self, days: int) -> None:
        """The same in raw alone."""
        self.keep_days = days
        for cut in cut_days(self.data, due_before(self.now, self.zone, days)):
            assert cut.error is None, cut.error

    def back_up(self, target: Path, keep: int = 14) -> None:
        """Back up to a folder. The newest `keep` backups stay there."""
        back_up(self.data, target, keep, self._tick())

    def restore(self, source: Path, folder: Path) -> Self:
        """Restore the newest backup into another folder, and publish: the house on it, with the
        same settings.
        """
        house = copy.copy(self)
        house.folder = folder
        restore(source, house.data, house.now)
        house.publish()
        end_restore(house.data)
        return house

    @property
    def data(self) -> DataFolder:
        """The data folder, whose clock is the house's."""
        settings = None
        if self.keep_days is not None:
            settings = Settings.from_variables({"LEADS_KEEP_PERSONAL_DAYS": str(self.keep_days)})
        return DataFolder.at(self.folder, self.bucket, lambda: self.now, settings)

    def failing_checks(self) -> dict[str, str]:
        """What the checks say of what is published, by table and name of each that fails."""
        with LeadsFile(self.data).reading() as db:
            found = {
                f"{check.table}: {check.name}": "\n".join(problems(db, check)) for check in checks()
            }
        return {check: said for check, said in found.items() if said}

    def copied(self, folder: Path) -> Self:
        """A house on a copy of the data folder."""
        house = copy.copy(self)
        shutil.copytree(self.folder, folder, symlinks=True)
        house.folder = folder
        return house

    def built_anew(self, folder: Path) -> Self:
        """A house on a copy of all files but leads.duckdb, published there from raw."""
        house = self.copied(folder)
        house.file.unlink()
        shutil.rmtree(folder / ".versions")
        house.publish()
        return house

    def _request(self, action: Action, given: Mapping[str, str | Sequence[str]]) -> None:
        person = _person(given)
        moment = self._tick()
        found: Found = find_person(self.data, person)
        requests.add(self.data, requests.Request(action, person, found, moment.date()), moment)
        self.publish()

    def correct(self, lead: str, email: str | None = None, phone: str | None = None) -> None:
        """Correct the address or the number of a lead, given as KIND/ID, and publish."""
        found = find_person(self.data, person := _person({"lead": lead}))
        moment = self._tick()
        request = requests.Request(Action.CORRECT, person, found, moment.date())
        requests.add_correction(self.data, request, email, phone, moment)
        self.publish()


def _rows(cursor: duckdb.DuckDBPyConnection) -> list[Row]:
    names = [column[0] for column in cursor.description or ()]
    return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


def _answer(kind: str, leads: Iterable[Lead]) -> bytes:
    return _body(f"{kind}s", leads)


def _body(key: str, elements: Iterable[Lead]) -> bytes:
    texts = [element if isinstance(element, str) else json.dumps(element) for element in elements]
    return f'{{"{key}":[{",".join(texts)}]}}'.encode(errors="surrogateescape")


def _person(given: Mapping[str, str | Sequence[str]]) -> Person:
    values = {name: [one] if isinstance(one, str) else [*one] for name, one in given.items()}
    leads, not_leads = (map(lead_key, values.get(name, ())) for name in ("lead", "not_lead"))
    emails, phones, names, postcodes = (
        values.get(name, ()) for name in ("email", "phone", "name", "postcode")
    )
    return Person.of(emails, phones, leads, names, postcodes, not_leads)
