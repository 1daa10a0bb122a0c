"""The questions of `doctor`: whether settings, secret, services and data folder work.

The answer says what to do if one doesn't.

Belongs here: live questions, a function each, and the short line if a finder found nothing.
Doesn't: what is wrong with the data (health/findings.py), reading every file (verify.py). Only
tokens are stored. The file system is tried out, and no file stays there.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import cache, partial
from pathlib import Path
from typing import Final

from leads_pipeline.domain.contract import LEAD_KINDS, Answer, LeadKind
from leads_pipeline.domain.window import Window, today
from leads_pipeline.errors import BusyError, LeadsPipelineError, SettingsError, StorageError
from leads_pipeline.features.doctor.file_system import prove_folder
from leads_pipeline.health.facts import Facts
from leads_pipeline.health.findings import Level, find
from leads_pipeline.health.seen import ONE_ATTEMPT, Doubt, Light, Seen, about_token, ask, seen
from leads_pipeline.portal import LeadsClient, Service, Tokens
from leads_pipeline.portal.credentials import PgpSecret, client_secret
from leads_pipeline.portal.http import server_time
from leads_pipeline.raw.data_folder import DataFolder, check_portal
from leads_pipeline.raw.durable import check_writable
from leads_pipeline.settings import THIS_MACHINE, Secret, Settings
from leads_pipeline.words import counted, some

# Clocks that are kept by NTP differ by less than a second. A Date header has whole seconds.
_CLOCK_WARN_SECONDS: Final = 30
# A day would count as closed while the portal still adds leads to it.
_CLOCK_FAIL_SECONDS: Final = 300
# The window of the test request. It is short, so the answer is quick. It is over, even if a clock
# is wrong.
_WINDOW_LENGTH: Final = timedelta(minutes=1)
_WINDOW_AGE: Final = timedelta(minutes=10)


# --- settings and services ------------------------------------------------------------------------


def ask_settings(settings: Settings, env_file: Path) -> Iterator[Seen]:
    """Ask if settings and packages are complete, and if others can read the secrets in .env."""
    yield ask("settings", lambda: _settings(settings))
    if env_file.is_file():
        yield ask(".env", lambda: _env_file(env_file))


def _settings(settings: Settings) -> str:
    settings.want_portal()
    return (
        f"{counted(len(settings.scopes), 'scope')} at {settings.base_url}, days in "
        f"{settings.zone.key}."
    )


def _env_file(path: Path) -> str:
    ways = path.absolute().parents
    if path.stat().st_mode & 0o004 and all(folder.stat().st_mode & 0o001 for folder in ways):
        raise Doubt(
            "Other users of this machine can read it and the secrets in it. Run `chmod 600 "
            f"{path}`."
        )
    return "Other users can't read it."


def ask_leads(
    facts: Facts,
    secret_of: Callable[[], Secret | PgpSecret],
    tokens: Callable[[], Tokens],
    clock: Callable[[], datetime] = lambda: datetime.now(UTC),
) -> Iterator[Seen]:
    """Ask the leads service: its time, the secret, a token, and each kind and scope for leads."""
    settings = facts.settings
    base_url = settings.base_url
    # All questions share one token. On a full disk, which keeps none, each would fetch its own.
    tokens = cache(tokens)

    if base_url:
        yield ask("clock", lambda: _clock(server_time(base_url), clock()))

    why_not_tried = "settings are missing" if settings.missing else ""
    if {*settings.missing} <= {"LEADS_BRANCH_IDS"}:  # else the line of the settings is red for it
        secret = ask("secret", lambda: _secret(settings, secret_of()))
        yield secret
        if secret.light is Light.RED:
            why_not_tried = "there is no secret"
        else:
            token = ask("token", lambda: about_token(tokens()))
            yield token
            if token.light is Light.RED:
                why_not_tried = "there is no token"

    for kind in LEAD_KINDS:
        name = f"{kind.name} leads"
        if why_not_tried or not base_url:
            yield Seen(name, Light.YELLOW, f"Not tried, as {why_not_tried}.")
        else:
            yield ask(name, partial(_small_requests, base_url, tokens, kind, settings))


def _secret(settings: Settings, secret: Secret | PgpSecret) -> str:
    value = client_secret(secret)
    pasted = {
        "The client secret": _pasted_with(value),
        "LEADS_CLIENT_ID": _pasted_with(settings.client_id or "-"),
    }

    if doubts := [f"{name} {doubt}" for name, doubt in pasted.items() if doubt]:
        raise Doubt(" ".join(doubts))

    key = settings.pgp_private_key_file if settings.client_secret_pgp_file else None
    if key and key.stat().st_mode & 0o077:
        raise Doubt(f"It works, but other users can read the private key. Run `chmod 600 {key}`.")

    given = settings.client_secret
    return (
        "Read from "
        f"{settings.client_secret_pgp_file or (given and (given.file or given.variable))}."
    )


def _pasted_with(value: str) -> str | None:
    """Name the blank or quotation mark that the value begins or ends with.

    Few ids and secrets have one there.
    """
    for blanks_or_quotes, what in ((" ", "a blank"), ("\"'`", "a quotation mark")):
        if value[0] in blanks_or_quotes or value[-1] in blanks_or_quotes:
            return f"begins or ends with {what}. Was it pasted with it?"
    return None


def _clock(theirs: datetime | None, ours: datetime) -> str:
    if theirs is None:
        raise Doubt(
            "The portal sends no time to compare with. Check that this machine sets its clock by "
            "NTP."
        )

    seconds = (ours - theirs).total_seconds()
    if abs(seconds) <= _CLOCK_WARN_SECONDS:
        return f"Within {max(1, round(abs(seconds)))} s of the portal's clock."

    way = "ahead of" if seconds > 0 else "behind"
    what = (
        f"This machine's clock is {abs(seconds):.0f} s {way} the portal's. Run `timedatectl "
        "set-ntp true`."
    )

    if abs(seconds) > _CLOCK_FAIL_SECONDS:
        raise SettingsError(f"{what} Until then, days may be pulled before they are over.")

    raise Doubt(what)


def _small_requests(
    base_url: str, tokens: Callable[[], Tokens], kind: LeadKind, settings: Settings
) -> str:
    """Ask for one minute of every scope.

    Raises the first error of a reason, with the scopes that have it.
    """
    service = Service(base_url=base_url, tokens=tokens(), policy=ONE_ATTEMPT)
    client = LeadsClient(service, max_concurrency=settings.max_concurrency)
    end = datetime.now(UTC).replace(microsecond=0) - _WINDOW_AGE
    windows = [
        Window(today(settings.zone, end), scope, end - _WINDOW_LENGTH, end)
        for scope in settings.scopes
    ]
    slowest = 0.0
    failed: dict[str, list[tuple[str, LeadsPipelineError]]] = {}

    for window, outcome in client.fetch_windows(kind, windows, lambda answer: answer):
        if isinstance(outcome, Answer):
            slowest = max(slowest, outcome.duration_seconds)
        else:
            failed.setdefault(outcome.reason, []).append((window.scope.key, outcome))

    if failed:
        lines = []
        for reason, cases in sorted(failed.items()):
            scopes = some(sorted(key for key, _ in cases))
            _, first_error = cases[0]
            lines.append(
                f"{reason}: {len(cases)} of {len(windows)} scopes ({scopes}). {first_error}"
            )
        if all(isinstance(error, BusyError) for cases in failed.values() for _, error in cases):
            raise Doubt(" ".join(lines))
        raise LeadsPipelineError(" ".join(lines))

    scopes = "1 scope answers" if len(windows) == 1 else f"All {len(windows)} scopes answer"
    return f"{scopes} within {slowest:.2f} s."


# --- the data folder ------------------------------------------------------------------------------


def ask_folder(facts: Facts) -> Iterator[Seen]:
    """Ask whether the data folder can be used, then all finders. A finding goes by its key."""
    folder = facts.data.folder
    writable = ask("data folder", lambda: _writable(facts.data))
    yield writable

    if writable.light is Light.RED:
        return

    yield ask("source", lambda: _source(facts))
    if folder.exists():
        yield ask("file system", lambda: _file_system(folder))
        yield ask("file rights", lambda: _modes(folder))

    findings = find(facts)
    yield from map(seen, findings)

    if all(finding.level is Level.HINT for finding in findings):
        yield Seen("findings", Light.GREEN, "No error or warning about the data is open.")


def _writable(data: DataFolder) -> str:
    check_writable(folder := data.folder)
    data.want_restored()
    return (
        f"{folder} can be written to."
        if folder.exists()
        else f"{folder} doesn't exist yet. The first run makes it."
    )


def _file_system(folder: Path) -> str:
    device = folder.stat().st_dev
    if others := [
        path.name for path in folder.iterdir() if path.is_dir() and path.stat().st_dev != device
    ]:
        raise StorageError(
            f"{', '.join(sorted(others))} in {folder}: on another file system. Damaged files are "
            "set aside by renaming, which works within one. Mount the data folder as a whole."
        )

    message = "The data folder is on one file system."
    file_system = prove_folder(folder)
    if not file_system.has_hard_links:
        message += " It has no hard links. The pipeline works without them."
    if not file_system.syncs_folders:
        message += " It can't sync a folder, so a power cut may take the files of the last seconds."
    return message


def _source(facts: Facts) -> str:
    check_portal(facts.settings, facts.data)
    claimed = facts.data.state.claimed_by()
    if claimed is None:
        return "No leads yet."
    return (
        "The data comes from "
        f"{'the simulator on this machine' if claimed == THIS_MACHINE else claimed}."
    )


def _modes(folder: Path) -> str:
    # Everybody can enter a checkout's own data/, so the files in it count.
    open_ones = [
        path for path in folder.iterdir() if path.name != "README.md" and _is_open_to_others(path)
    ]
    if open_ones and folder.stat().st_mode & 0o001:
        named = some(sorted(path.name for path in open_ones))
        raise Doubt(
            f"Other users of this machine can read leads, in {named}. Run `chmod o= {folder}`."
        )
    return "Other users can't read leads."


def _is_open_to_others(path: Path) -> bool:
    with suppress(FileNotFoundError):  # a link whose file is gone
        return bool(path.stat().st_mode & 0o007)
    return False
