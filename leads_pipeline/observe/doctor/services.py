"""Whether settings, secret, clocks, tokens and services work.

Belongs here: looking at them, one finding each. Doesn't: the data folder (folder.py), what a finding is (findings.py).
"""

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from importlib.metadata import version
from pathlib import Path

from dagster import DagsterError, DagsterInstance
from sqlalchemy.exc import SQLAlchemyError

from leads_pipeline.domain.contract import LEAD_KINDS, Answer, LeadKind
from leads_pipeline.domain.window import Window, today
from leads_pipeline.errors import BusyError, LeadsPipelineError, SettingsError, StorageError
from leads_pipeline.observe.doctor.findings import Finding, Light, Warned, look_at, some_of
from leads_pipeline.observe.doctor.folder import examine_folder
from leads_pipeline.orchestration.resources import InventoryService, LeadsService
from leads_pipeline.portal import InventoryClient, LeadsClient, RetryPolicy, Tokens
from leads_pipeline.portal.credentials import client_secret
from leads_pipeline.portal.http import server_time
from leads_pipeline.settings import OURS, Settings, pasted_with, unknown
from leads_pipeline.storage.branches import read_branches
from leads_pipeline.storage.data_folder import DataFolder
from leads_pipeline.transform.typed import want_deltalake

# A person waits for the answer: what doesn't come at once is told as it is.
ONE_ATTEMPT = RetryPolicy(max_attempts=1)
# Clocks that are kept by NTP differ by less than a second; a Date header has whole seconds and a way to go.
CLOCK_WARN_SECONDS = 30
# From here on a day would be taken for closed while the portal still adds leads to it.
CLOCK_FAIL_SECONDS = 300
# The window of the test request: so short that it answers at once, and so far back that it is over by any clock.
WINDOW_LENGTH = timedelta(minutes=1)
WINDOW_AGE = timedelta(minutes=10)

_DAGSTER_PACKAGES = ("dagster", "dagster-webserver", "dagster-dg-cli")


def examine(
    settings: Settings, data: DataFolder, leads: LeadsService, inventory: InventoryService
) -> Iterator[Finding]:
    """Look at everything, in the order in which one thing needs the other."""
    yield look_at("settings", lambda: _settings(settings))
    if settings.branches_file:
        yield look_at("names of branches", lambda: _names(settings))
    yield from examine_leads(settings, leads)
    yield from examine_inventory(settings, inventory)
    yield from examine_folder(settings, data)
    yield look_at("versions", _versions)
    if settings.has_delta:
        yield look_at("Delta tables", want_deltalake)


def examine_names(variables: Iterable[str]) -> Finding:
    """Whether each variable that looks like one of ours is one: a slip is never read, and nothing else would say so."""

    def look() -> str:
        ours = [name for name in variables if name.startswith(OURS)]
        if hints := unknown(ours):
            raise SettingsError(" ".join(hints))
        return f"{len(ours)} are set, all known."

    return look_at("variables", look)


def examine_env_file(path: Path) -> Iterator[Finding]:
    """Whether other users can read the file that may hold the secret; nothing where there is none."""

    def look() -> str:
        ways = path.absolute().parents
        if path.stat().st_mode & 0o004 and all(folder.stat().st_mode & 0o001 for folder in ways):
            raise Warned(f"Other users of this machine can read it, and secrets may stand in it: chmod 600 {path}")
        return "Read, and closed to other users."

    if path.is_file():
        yield look_at(path.name, look)


def examine_leads(settings: Settings, leads: LeadsService) -> Iterator[Finding]:
    """The leads service: secret, clock, token, and for each kind of leads one small request per scope."""
    secret = look_at("secret", lambda: _secret(leads))
    yield secret
    base_url = settings.base_url
    if base_url:
        yield look_at("clock", lambda: _clock(server_time(base_url), datetime.now(UTC)))
    auths: list[Tokens] = []
    if secret.light is Light.RED:
        yield _not_tried("token", "secret")
    else:
        yield look_at("token", lambda: _token(leads.tokens(), auths))
    for kind in LEAD_KINDS if settings.scopes else ():
        name = f"{kind.name} leads"
        if not auths or not base_url:
            yield _not_tried(name, "token")
            continue
        client = LeadsClient(base_url, auths[0], max_concurrency=settings.max_concurrency, policy=ONE_ATTEMPT)
        yield look_at(name, partial(_ask, client, kind, settings))


def _not_tried(check: str, missing: str) -> Finding:
    return Finding(check, Light.YELLOW, f"Not tried, as there is no {missing}.")


def examine_inventory(settings: Settings, inventory: InventoryService) -> Iterator[Finding]:
    """The inventory API: token, and the first page for the first address."""
    if settings.inventory_base_url is None:
        yield Finding("inventory", Light.GREEN, "Not set up; everything else runs without it.")
        return
    base_url, auths = settings.inventory_base_url, list[Tokens]()
    token = look_at("inventory token", lambda: _token(inventory.tokens(), auths))
    yield token
    if token.light is not Light.GREEN:
        yield _not_tried("inventory", "token")
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

    yield look_at("inventory", search)


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
            raise Warned(
                f"{home}/dagster.yaml lacks {' and '.join(missing)}. Pulls wait for each other all the same, but each "
                "takes a place among the runs meanwhile, and a run whose process died may count as under way for ever. "
                "Add them; or move the file away, and the next start writes a sound one."
            )
        return f"{home} limits what runs side by side, and watches over runs."

    return look_at("Dagster's home", look)


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
        raise Warned(
            f"{len(nameless)} of {len(settings.scopes)} scopes have none in LEADS_BRANCHES_FILE: {some_of(nameless)}."
        )
    more = sorted(names.keys() - {scope.key for scope in settings.scopes})
    others = f" It names {len(more)} that aren't configured: {some_of(more)}." if more else ""
    return f"LEADS_BRANCHES_FILE names all {len(settings.scopes)} scopes.{others}"


def _secret(leads: LeadsService) -> str:
    value = client_secret(leads.secret())
    pasted = {"The client secret": pasted_with(value), "LEADS_CLIENT_ID": pasted_with(leads.client_id or "-")}
    if doubts := [f"{name} {doubt}" for name, doubt in pasted.items() if doubt]:
        raise Warned(" ".join(doubts))
    key = leads.pgp_private_key_file if leads.client_secret_pgp_file else None
    if key and Path(key).stat().st_mode & 0o077:
        raise Warned(f"Works, but other users can read the private key: chmod 600 {key}")
    origin = leads.client_secret_pgp_file or leads.client_secret_file
    return f"Read from {origin}." if origin else "Read from LEADS_CLIENT_SECRET."


def _clock(theirs: datetime | None, ours: datetime) -> str:
    if theirs is None:
        raise Warned(
            "The service sends no Date, so the clocks can't be compared. See that this machine keeps NTP time."
        )
    seconds = (ours - theirs).total_seconds()
    if abs(seconds) <= CLOCK_WARN_SECONDS:
        return f"Within {max(1, round(abs(seconds)))} s of the service's."
    way = "ahead of" if seconds > 0 else "behind"
    what = f"This machine's clock is {abs(seconds):.0f} s {way} the service's. Set it by NTP: timedatectl set-ntp true"
    if abs(seconds) > CLOCK_FAIL_SECONDS:
        raise SettingsError(f"{what}. Days would be taken for closed at the wrong moment.")
    raise Warned(what)


def _token(tokens: Tokens, auths: list[Tokens]) -> str:
    token = tokens.get()
    auths.append(tokens)
    minutes = token.lifetime_seconds / 60
    whence = "Got a new one" if tokens.source == "endpoint" else "The one at hand is still good"
    return f"{whence}, issued for {minutes:.0f} minutes."


def _ask(client: LeadsClient, kind: LeadKind, settings: Settings) -> str:
    """One minute of every scope, side by side. Raises the first error of a cause that names the scopes it befell."""
    end = datetime.now(UTC).replace(microsecond=0) - WINDOW_AGE
    windows = [Window(today(settings.zone, end), scope, end - WINDOW_LENGTH, end) for scope in settings.scopes]
    answers: list[Answer] = []
    failed: dict[str, list[tuple[str, LeadsPipelineError]]] = {}
    for window, outcome in client.fetch_windows(kind, windows, lambda answer: answer):
        if isinstance(outcome, Answer):
            answers.append(outcome)
        else:
            failed.setdefault(outcome.reason, []).append((window.scope.key, outcome))
    if failed:
        lines = []
        for reason, cases in sorted(failed.items()):
            named = some_of(sorted(key for key, _ in cases))
            lines.append(f"{reason}: {len(cases)} of {len(windows)} scopes ({named}). {cases[0][1]}")
        is_busy = all(isinstance(error, BusyError) for cases in failed.values() for _, error in cases)
        raise (Warned if is_busy else LeadsPipelineError)(" ".join(lines))
    slowest = max(answer.duration_seconds for answer in answers)
    leads = sum(len(answer.leads) for answer in answers)
    scopes = "1 scope answers" if len(windows) == 1 else f"All {len(windows)} scopes answer"
    return f"{scopes}, within {slowest:.2f} s; {leads} in the minute that was asked for."


def _versions() -> str:
    versions = {name: version(name) for name in (*_DAGSTER_PACKAGES, "duckdb")}
    if len({versions[name] for name in _DAGSTER_PACKAGES}) > 1:
        raise SettingsError(f"Dagster's packages are of different versions, {versions}: install one of all three.")
    return f"Dagster {versions['dagster']}, DuckDB {versions['duckdb']}."
