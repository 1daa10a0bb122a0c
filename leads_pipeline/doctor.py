"""What a person with fresh credentials asks first: does it work, and if not, what is to be done?

Belongs here: looking at settings, secret, clocks, tokens, services and data folder, one finding each. Doesn't: showing
the findings (cli/, assets/), or changing anything but the token store.
"""

import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from enum import StrEnum
from functools import partial
from importlib.metadata import version
from pathlib import Path

from dagster import DagsterError, DagsterInstance
from sqlalchemy.exc import SQLAlchemyError

from leads_pipeline.auth import ClientCredentialsAuth
from leads_pipeline.backup import last_backup
from leads_pipeline.branches import read_branches
from leads_pipeline.client import InventoryClient, LeadsClient, server_time
from leads_pipeline.contract import LEAD_KINDS, Answer, LeadKind
from leads_pipeline.damage import damage_message, damages
from leads_pipeline.delta.folder import want_deltalake
from leads_pipeline.errors import BusyError, LeadsPipelineError, SettingsError, StorageError
from leads_pipeline.lake import Lake
from leads_pipeline.resources import AlertService, DataFolder, InventoryService, LeadsService, origin
from leads_pipeline.retry import RetryPolicy
from leads_pipeline.settings import OURS, VARIABLES, Settings
from leads_pipeline.warehouse import Warehouse
from leads_pipeline.window import Window, today

# A person waits for the answer: what doesn't come at once is told as it is.
ONE_ATTEMPT = RetryPolicy(max_attempts=1)
# Clocks that are kept by NTP differ by less than a second; a Date header has whole seconds and a way to go.
CLOCK_WARN_SECONDS = 30
# From here on a day would be taken for closed while the portal still adds leads to it.
CLOCK_FAIL_SECONDS = 300
# The window of the test request: so short that it answers at once, and so far back that it is over by any clock.
WINDOW_LENGTH = timedelta(minutes=1)
WINDOW_AGE = timedelta(minutes=10)
# A publication copies the warehouse aside; a day of leads takes megabytes.
SPACE_WARN_BYTES = 1_000_000_000
SPACE_FAIL_BYTES = 100_000_000

# How many things of one cause are named; the rest are counted.
MOST_NAMED = 10

_DAGSTER_PACKAGES = ("dagster", "dagster-webserver", "dagster-dg-cli")


class Light(StrEnum):
    """Green: works. Yellow: works, and something should be done. Red: doesn't work."""

    GREEN = "green"
    YELLOW = "yellow"
    RED = "red"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at. `message` tells what was seen and, unless it is green, what to do."""

    check: str
    light: Light
    message: str


def examine(
    settings: Settings, data: DataFolder, leads: LeadsService, inventory: InventoryService
) -> Iterator[Finding]:
    """Look at everything, in the order in which one thing needs the other."""
    yield _look("settings", lambda: _settings(settings))
    if settings.branches_file:
        yield _look("names of branches", lambda: _names(settings))
    yield from examine_leads(settings, leads)
    yield from examine_inventory(settings, inventory)
    yield from _data_folder(settings, data)
    yield _look("versions", _versions)
    if settings.has_delta:
        yield _look("Delta tables", want_deltalake)


def examine_names(variables: Iterable[str]) -> Finding:
    """Whether each variable that looks like one of ours is one: a slip is never read, and nothing else would say so."""

    def look() -> str:
        ours = [name for name in variables if name.startswith(OURS)]
        if unknown := sorted(set(ours) - VARIABLES):
            guesses = {name: get_close_matches(name, VARIABLES, 1, cutoff=0.8) for name in unknown}
            names = [f"{name} (did you mean {guess[0]}?)" if guess else name for name, guess in guesses.items()]
            raise SettingsError(f"{', '.join(names)}: no variable of ours, so it is never read. Rename or remove it.")
        return f"{len(ours)} are set, all known."

    return _look("variables", look)


def examine_env_file(path: Path) -> Iterator[Finding]:
    """Whether other users can read the file that may hold the secret; nothing where there is none."""

    def look() -> str:
        ways = path.absolute().parents
        if path.stat().st_mode & 0o004 and all(folder.stat().st_mode & 0o001 for folder in ways):
            raise _Warning(f"Other users of this machine can read it, and secrets may stand in it: chmod 600 {path}")
        return "Read, and closed to other users."

    if path.is_file():
        yield _look(path.name, look)


def examine_leads(settings: Settings, leads: LeadsService, kinds: Sequence[LeadKind] = LEAD_KINDS) -> Iterator[Finding]:
    """The leads service: secret, clock, token, and for each kind of leads one small request per scope."""
    secret = _look("secret", lambda: _secret(leads))
    yield secret
    base_url = settings.base_url
    if base_url:
        yield _look("clock", lambda: _clock(server_time(base_url), datetime.now(UTC)))
    if secret.light is Light.RED:
        return
    auths: list[ClientCredentialsAuth] = []
    token = _look("token", lambda: _token(leads.auth(), auths))
    yield token
    if token.light is not Light.GREEN or not base_url:
        return
    client = LeadsClient(base_url, auths[0], max_concurrency=settings.max_concurrency, policy=ONE_ATTEMPT)
    for kind in kinds if settings.scopes else ():
        yield _look(f"{kind.name} leads", partial(_ask, client, kind, settings))


def examine_inventory(settings: Settings, inventory: InventoryService) -> Iterator[Finding]:
    """The inventory API: token, and the first page for the first address."""
    if settings.inventory_base_url is None:
        yield Finding("inventory", Light.GREEN, "Not set up; everything else runs without it.")
        return
    base_url, auths = settings.inventory_base_url, list[ClientCredentialsAuth]()
    token = _look("inventory token", lambda: _token(inventory.auth(), auths))
    yield token
    if token.light is not Light.GREEN:
        return
    if not settings.inventory_addresses:
        yield Finding(
            "inventory", Light.YELLOW, "INVENTORY_ADDRESSES names no place, so there is nothing to search. Set it."
        )
        return

    def search() -> str:
        if not settings.inventory_agency_ref:
            raise SettingsError("INVENTORY_AGENCY_REF is not set. It came by e-mail from the developer portal.")
        client = InventoryClient(base_url, auths[0], settings.inventory_agency_ref, policy=ONE_ATTEMPT)
        page = client.first_page(settings.inventory_addresses[0])
        return f"Searched the first of {len(settings.inventory_addresses)} places: {len(page.items)} items on a page."

    yield _look("inventory", search)


def examine_alerts(alerts: AlertService) -> Finding:
    """Where somebody is told of what goes wrong; that it arrives is for `leads-pipeline alert --test` to show."""

    def look() -> str:
        channels = [channel.name for channel in alerts.channels()]
        if not channels:
            return (
                "Not set up: nobody hears of a failure who doesn't look. LEADS_ALERT_EMAIL with LEADS_SMTP_URL would "
                "tell you by e-mail."
            )
        silence = (
            "" if alerts.heartbeat() else " LEADS_HEARTBEAT_URL isn't set, so nothing rings when the machine is off."
        )
        return f"Go to {', '.join(channels)}; `leads-pipeline alert --test` tries them.{silence}"

    return _look("alerts", look)


def examine_home(home: Path) -> Finding:
    """Whether Dagster's home has the limits of the dagster.yaml that `leads-pipeline` writes; its own has none."""

    def look() -> str:
        if not (home / "dagster.yaml").exists():
            return f"{home}/dagster.yaml is made at the first start."
        try:
            with DagsterInstance.from_config(str(home)) as instance:
                pools = instance.get_concurrency_config().pool_config
                missing = [] if pools.default_pool_limit == 1 else ["concurrency.pools.default_limit: 1"]
                missing += [] if instance.run_monitoring_enabled else ["run_monitoring.enabled: true"]
        except (DagsterError, SQLAlchemyError) as error:
            raise StorageError(
                f"Dagster can't read its own state in {home} ({type(error).__name__}). See dagster.yaml there."
            ) from error
        if missing:
            raise _Warning(
                f"{home}/dagster.yaml lacks {' and '.join(missing)}. Pulls wait for each other all the same, but each "
                "takes a place among the runs meanwhile, and a run whose process died may count as under way for ever. "
                "Add them; or move the file away, and the next start writes a sound one."
            )
        return f"{home} limits what runs side by side, and watches over runs."

    return _look("Dagster's home", look)


def some_of(names: Sequence[str]) -> str:
    """The first names in a line; a last mark tells of others."""
    return ", ".join(names[:MOST_NAMED]) + (", …" if len(names) > MOST_NAMED else "")


class _Warning(Exception):  # noqa: N818 - a finding on its way, not an error
    """What makes a finding yellow."""


def _look(check: str, see: Callable[[], str]) -> Finding:
    try:
        return Finding(check, Light.GREEN, see())
    except (_Warning, BusyError) as warning:
        return Finding(check, Light.YELLOW, str(warning))
    except LeadsPipelineError as error:
        return Finding(check, Light.RED, str(error))


def _settings(settings: Settings) -> str:
    required = {
        "LEADS_BASE_URL": settings.base_url,
        "LEADS_AUTH_URL": settings.auth_url,
        "LEADS_CLIENT_ID": settings.client_id,
        "LEADS_BRANCH_IDS": settings.scopes,
    }
    if missing := [variable for variable, value in required.items() if not value]:
        raise SettingsError(f"{', '.join(missing)}: not set. Put them into .env or the environment.")
    count = len(settings.scopes)
    return f"{count} {'scope' if count == 1 else 'scopes'} at {settings.base_url}, days in {settings.zone.key}."


def _names(settings: Settings) -> str:
    names = read_branches(settings.branches_file).names
    if nameless := [scope.key for scope in settings.scopes if scope.key not in names]:
        raise _Warning(
            f"{len(nameless)} of {len(settings.scopes)} scopes have none in LEADS_BRANCHES_FILE: {some_of(nameless)}."
        )
    more = sorted(names.keys() - {scope.key for scope in settings.scopes})
    others = f" It names {len(more)} that aren't configured: {some_of(more)}." if more else ""
    return f"LEADS_BRANCHES_FILE names all {len(settings.scopes)} scopes.{others}"


def _secret(leads: LeadsService) -> str:
    leads.secret().read()
    key = leads.pgp_private_key_file if leads.client_secret_pgp_file else None
    if key and Path(key).stat().st_mode & 0o077:
        raise _Warning(f"Works, but other users can read the private key: chmod 600 {key}")
    origin = leads.client_secret_pgp_file or leads.client_secret_file
    return f"Read from {origin}." if origin else "Read from LEADS_CLIENT_SECRET."


def _clock(theirs: datetime | None, ours: datetime) -> str:
    if theirs is None:
        raise _Warning(
            "The service sends no Date, so the clocks can't be compared. See that this machine keeps NTP time."
        )
    seconds = (ours - theirs).total_seconds()
    if abs(seconds) <= CLOCK_WARN_SECONDS:
        return f"Within {max(1, round(abs(seconds)))} s of the service's."
    way = "ahead of" if seconds > 0 else "behind"
    what = f"This machine's clock is {abs(seconds):.0f} s {way} the service's. Set it by NTP: timedatectl set-ntp true"
    if abs(seconds) > CLOCK_FAIL_SECONDS:
        raise SettingsError(f"{what}. Days would be taken for closed at the wrong moment.")
    raise _Warning(what)


def _token(auth: ClientCredentialsAuth, auths: list[ClientCredentialsAuth]) -> str:
    token = auth.token()
    auths.append(auth)
    minutes = token.lifetime_seconds / 60
    whence = "Got a new one" if auth.token_source == "endpoint" else "The one at hand is still good"  # noqa: S105 - a word
    return f"{whence}, issued for {minutes:.0f} minutes."


def _ask(client: LeadsClient, kind: LeadKind, settings: Settings) -> str:
    """One minute of every scope, side by side. Raises the first error of a cause that names the scopes it befell."""
    end = datetime.now(UTC).replace(microsecond=0) - WINDOW_AGE
    windows = [Window(today(settings.zone, end), scope, end - WINDOW_LENGTH, end) for scope in settings.scopes]
    answers: list[Answer] = []
    failed: dict[str, list[tuple[str, LeadsPipelineError]]] = {}
    for window, outcome in client.fetch_windows(kind, windows):
        if isinstance(outcome, Answer):
            answers.append(outcome)
        else:
            failed.setdefault(outcome.reason, []).append((window.scope.key, outcome))
    if failed:
        lines = []
        for reason, cases in sorted(failed.items()):
            named = some_of([key for key, _ in cases])
            lines.append(f"{reason}: {len(cases)} of {len(windows)} scopes ({named}). {cases[0][1]}")
        is_busy = all(isinstance(error, BusyError) for cases in failed.values() for _, error in cases)
        raise (_Warning if is_busy else LeadsPipelineError)(" ".join(lines))
    slowest = max(answer.duration_seconds for answer in answers)
    leads = sum(len(answer.leads) for answer in answers)
    scopes = "1 scope answers" if len(windows) == 1 else f"All {len(windows)} scopes answer"
    return f"{scopes}, within {slowest:.2f} s; {leads} in the minute that was asked for."


# --- the data folder --------------------------------------------------------------------------------------------------


def _data_folder(settings: Settings, data: DataFolder) -> Iterator[Finding]:
    folder = settings.data_dir
    folder_finding = _look("data folder", lambda: writable(folder))
    yield folder_finding
    if folder_finding.light is Light.RED or not folder.exists():
        return
    warehouse = Warehouse(data.lake)
    yield examine_space(data)
    yield examine_backup(data.lake, datetime.now(UTC))
    yield _look("one file system", lambda: _one_file_system(folder))
    yield _look("file modes", lambda: _modes(folder))
    yield _look("whole files", lambda: _whole(data))
    yield _look("suppression list", lambda: _suppression(data))
    yield _look("retention", lambda: _retention(settings))
    yield _look("portal of the data", lambda: same_portal(settings, data.lake))
    if warehouse.path.exists():
        yield _look("warehouse", lambda: _warehouse(warehouse))


def writable(folder: Path) -> str:
    """Say that the folder can be written to, or made. Raises StorageError where neither can be."""
    there = next(path for path in (folder, *folder.parents) if path.exists())
    try:
        with tempfile.TemporaryFile(dir=there):
            pass
    except OSError as error:
        raise StorageError(
            f"Nothing can be written to {there} ({error.strerror}). Make it this user's own, or set LEADS_DATA_DIR."
        ) from None
    return f"{folder} can be written to." if there == folder else f"{folder} is made at the first run."


def examine_space(data: DataFolder) -> Finding:
    """Whether there is room for the next publication."""
    return _look("free space", lambda: _space(data.lake.folder, Warehouse(data.lake)))


def examine_backup(lake: Lake, now: datetime) -> Finding:
    """Whether backups are still made, where one ever was."""
    return _look("backup", lambda: last_backup(lake, now))


def _space(folder: Path, warehouse: Warehouse) -> str:
    free = shutil.disk_usage(folder).free
    copy = warehouse.path.stat().st_size if warehouse.path.exists() else 0
    what = f"{free / 1e9:.1f} GB are free"
    if free < SPACE_FAIL_BYTES + copy:
        raise StorageError(f"{what}, too little to copy leads.duckdb ({copy / 1e9:.1f} GB) aside. Make room.")
    if free < SPACE_WARN_BYTES + 2 * copy:
        size = f"leads.duckdb ({copy / 1e9:.1f} GB) once more, and twice after an erasure"
        raise _Warning(f"{what}. A publication needs {size}. Make room soon.")
    return f"{what}."


def _one_file_system(folder: Path) -> str:
    device = folder.stat().st_dev
    if others := sorted(path.name for path in folder.iterdir() if path.is_dir() and path.stat().st_dev != device):
        raise StorageError(
            f"{', '.join(others)} in {folder} lie on another file system. Files are put in place by renaming, which "
            "works within one alone. Mount the data folder as a whole."
        )
    return f"All of {folder} lies on one."


def _modes(folder: Path) -> str:
    state = folder / ".state"
    private = [state / "tokens", *(state / "tokens").glob("*")] if (state / "tokens").exists() else []
    if too_open := [path for path in private if path.stat().st_mode & 0o077]:
        raise StorageError(f"Other users can read access tokens: chmod -R go= {too_open[0].parent}")
    # A checkout's own data/ can be entered by everybody; what lies in it is what counts.
    open_ones = [path for path in folder.iterdir() if path.stat().st_mode & 0o007 and path.name != "README.md"]
    if open_ones and folder.stat().st_mode & 0o001:
        raise _Warning(
            f"Other users of this machine can read {', '.join(sorted(path.name for path in open_ones))} in {folder}, "
            f"where leads are, which are personal data: chmod o= {folder}"
        )
    return "Tokens and leads are closed to other users."


def _whole(data: DataFolder) -> str:
    damaged = damages(data.lake)
    if damaged:
        raise StorageError(damage_message(len(damaged)))
    return "Nothing is damaged: quarantine/ holds nothing that is missed."


def _suppression(data: DataFolder) -> str:
    suppressed = data.lake.suppression.read()
    where = data.lake.suppression.folder
    if not suppressed:
        return "Nobody is on it."
    if where.is_relative_to(data.lake.folder):
        raise _Warning(
            f"It lies in {where}: whoever restores the data folder from a backup takes it back, and people who were "
            "erased return. Move the folder to where other backups are made of it, and set LEADS_PRIVACY_DIR."
        )
    return f"It is whole, with its key, apart from the data: {where}."


def _retention(settings: Settings) -> str:
    days_by_what = {
        "LEADS_KEEP_PERSONAL_DAYS is not set: names, addresses and messages": settings.keep_personal_days,
        "LEADS_KEEP_DAYS is not set: leads, by a hash of their person,": settings.keep_days,
    }
    if forever := [what for what, days in days_by_what.items() if days is None]:
        raise _Warning(
            f"{'; '.join(f'{what} are kept for ever' for what in forever)}, for which UK GDPR asks a reason. Decide "
            "for how long; docs/privacy.md says what goes then."
        )
    return f"Each night personal fields go after {settings.keep_personal_days} days, leads after {settings.keep_days}."


def same_portal(settings: Settings, lake: Lake) -> str:
    """Say whose leads the folder holds. Raises SettingsError where they are another portal's than the settings name."""
    claimed = lake.claimed_by()
    if claimed is None:
        return "No leads yet."
    if settings.base_url and claimed != origin(settings.base_url):
        raise SettingsError(
            f"It holds leads from {claimed}, and LEADS_BASE_URL is {origin(settings.base_url)}. Set LEADS_DATA_DIR to "
            "another folder; or, if this one was only the demo, delete it."
        )
    return f"Its leads come from {claimed}."


def _warehouse(warehouse: Warehouse) -> str:
    _, [(rows,)] = warehouse.query("select count(*) from landed_windows")
    return f"leads.duckdb opens; it covers {rows} landed windows."


def _versions() -> str:
    versions = {name: version(name) for name in (*_DAGSTER_PACKAGES, "duckdb")}
    if len({versions[name] for name in _DAGSTER_PACKAGES}) > 1:
        raise SettingsError(f"Dagster's packages are of different versions, {versions}: install one of all three.")
    return f"Dagster {versions['dagster']}, DuckDB {versions['duckdb']}."
