"""The mutants: each breaks one promise in one place.

Whoever rebuilds a room brings the room's mutants along. A mutant whose function is gone is an error.
"""

# ruff: noqa: ARG001, S608
# mypy: disable-error-code="no-untyped-def, no-any-return"

from typing import TYPE_CHECKING

from leads_pipeline_tests.mutants.patching import mutant, sql_mutant, unbroken

if TYPE_CHECKING:  # the bodies see the names of the modules that they are put into
    import base64
    import os
    import shutil
    from dataclasses import replace
    from datetime import UTC, datetime, time, timedelta
    from decimal import Decimal
    from http import HTTPStatus
    from pathlib import Path

    import duckdb
    import pyarrow as pa
    import pyarrow.parquet as pq
    import sqlalchemy

    from leads_pipeline.domain.window import RETENTION
    from leads_pipeline.errors import CredentialsError, InvalidAnswerError, LeadsPipelineError, ServerError
    from leads_pipeline.observe.questions import Light, Seen
    from leads_pipeline.privacy.sweeping import sweep
    from leads_pipeline.settings import AuthMethod
    from leads_pipeline.storage.durable import drafted, storing
    from leads_pipeline.storage.inventory import FoundItem
    from leads_pipeline.storage.rows import Opened
    from leads_pipeline.storage.windows import WindowState
    from leads_pipeline.transform.duck import connection
    from leads_pipeline.transform.feed import begin_feed
    from leads_pipeline.transform.versions import number_of

TESTS = "leads_pipeline_tests"
DURABLE = (f"{TESTS}/storage/test_durable.py",)
STORE = (f"{TESTS}/storage/test_store.py",)
RAW = (f"{TESTS}/storage/test_raw.py",)
WINDOWS = (f"{TESTS}/storage/test_windows.py",)
GATE = (f"{TESTS}/privacy/test_gate.py",)
STATE = (f"{TESTS}/storage/test_state.py",)
CACHE = (f"{TESTS}/storage/test_cache.py",)
INVENTORY = (f"{TESTS}/storage/test_inventory.py",)
DUE = (f"{TESTS}/domain/test_due.py",)
PACE = (f"{TESTS}/portal/test_pace.py",)
WINDOW = (f"{TESTS}/domain/test_window.py",)
AUTH = (f"{TESTS}/portal/test_tokens.py",)
CLIENT = (f"{TESTS}/portal/test_client.py",)
CREDENTIALS = (f"{TESTS}/portal/test_credentials.py",)
RECEIVER = (f"{TESTS}/portal/test_receiver.py",)
ALERTS = (f"{TESTS}/observe/test_alerts.py",)
FINDINGS = (f"{TESTS}/observe/test_findings.py",)
CHANNELS = (f"{TESTS}/observe/test_channels.py",)
PERSON = (f"{TESTS}/domain/test_person.py",)
READER = (f"{TESTS}/transform/test_reader.py",)
LOAD = (f"{TESTS}/transform/test_load.py",)
PUBLISH = (f"{TESTS}/transform/test_publish.py",)
DAMAGE = (f"{TESTS}/storage/test_damage.py",)
VERIFICATION = (f"{TESTS}/observe/test_verification.py",)
QUESTIONS = (f"{TESTS}/observe/test_questions.py",)
REQUESTS = (f"{TESTS}/privacy/test_requests.py",)
FEED = (f"{TESTS}/transform/test_feed.py",)
MARTS = (f"{TESTS}/transform/test_marts.py",)
MART_FILES = (f"{TESTS}/transform/test_mart_files.py",)
OWN_MARTS = (f"{TESTS}/transform/test_own_marts.py",)
TYPED_FILES = (f"{TESTS}/transform/test_typed.py",)
DRIFT = (f"{TESTS}/transform/test_drift.py",)
CHECKS = (f"{TESTS}/transform/test_checks.py",)
REPORT = (f"{TESTS}/transform/test_report.py",)
DELTA = (f"{TESTS}/transform/test_delta.py",)
BACKUP = (f"{TESTS}/storage/test_backup.py",)
SHARE = (f"{TESTS}/privacy/test_share.py",)
EXPORT = (f"{TESTS}/transform/test_export.py",)
SETTINGS = (f"{TESTS}/test_settings.py",)
RESOURCES = (f"{TESTS}/orchestration/test_resources.py",)
LIST = (f"{TESTS}/privacy/test_suppression.py",)
NIGHT = (f"{TESTS}/privacy/test_privacy_sweep.py",)
PULLING = (f"{TESTS}/orchestration/test_pulling.py",)
PUBLISHING = (f"{TESTS}/orchestration/test_publish_changes.py",)
CATALOG = (f"{TESTS}/orchestration/test_conventions.py",)
EVENT_LOG = (f"{TESTS}/orchestration/test_kept_event_log.py",)
DELIVERY = (f"{TESTS}/delivery/test_delivery.py",)

ON_DISK = "materialized means on the disk"
PRIVATE = "other users of the machine read no lead and no token"
ASKED = "every window that can still be had is asked for"
POLITE = "a service that asks for patience gets it"
DAYS = "days tile, so no lead is lost or doubled"
TOKENS = "one token serves the whole installation, for the portal alone"
SECRET = "no secret leaves the product"
SET = "a wrong setting is named, with what to do"
PUSHED = "a pushed lead is taken from the key's owner alone, and is kept"
TOLD = "told once, and over"
FOLLOWED = "a program that follows the feed misses no change and sees none twice"
TYPED = "a value is typed exactly, or it is kept as received and named"
ONCE = "each lead is published once, in its newest version"
SHOWN = "Dagster shows how each window stands"
FRESH = "what has landed is published soon, and not too often"
FIGURES = "figures are those of the portal's leads"
OWN = "a mart of the agency's own hurts nothing else"
ERASED = "an erased person stays erased"
DELIVERED = "each version of a lead reaches the agency's endpoint once, in order"
RESTORED = "a backup brings everything back"


# --- durable bytes ----------------------------------------------------------------------------------------------------


@mutant("nothing is synced", "leads_pipeline.storage.durable:sync", promise=ON_DISK, tests=DURABLE)
def _(path):
    return None


@mutant("the folder isn't synced", "leads_pipeline.storage.durable:replace_file", promise=ON_DISK, tests=DURABLE)
def _(path, content):
    with storing(path), drafted(path, content) as draft:
        draft.replace(path)


@mutant("files are open to others", "leads_pipeline.storage.durable:write_new", promise=PRIVATE, tests=DURABLE)
def _(draft, content):
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644), "wb") as file:
        file.write(content)


# --- windows and days -------------------------------------------------------------------------------------------------


@mutant("each day has 24 hours", "leads_pipeline.domain.window:day_interval", promise=DAYS, tests=WINDOW)
def _(day, zone):
    start = datetime.combine(day, time.min, tzinfo=zone).astimezone(UTC)
    return start, start + timedelta(days=1)


@mutant(
    "a window counts as deleted too early",
    "leads_pipeline.domain.window:Window.is_deleted",
    promise=ASKED,
    tests=WINDOW,
)
def _(self, now):
    return self.start <= now - RETENTION


@mutant("a day under way counts as over", "leads_pipeline.domain.window:Window.is_closed", promise=ASKED, tests=WINDOW)
def _(self, now):
    return self.start <= now


# --- raw windows and what is due -------------------------------------------------------------------------------------


@mutant("a damaged raw file counts as whole", "leads_pipeline.storage.landing:_opened", promise=ON_DISK, tests=RAW)
def _(content, file):
    return Opened(content)


@mutant(
    "a list that grows during a landing isn't seen",
    "leads_pipeline.storage.landing:Raw._follow_list",
    promise=ERASED,
    tests=RAW,
)
def _(self, place, number):
    return None


@mutant(
    "only the newest file of a window is read",
    "leads_pipeline.storage.landing:Contents.rows",
    promise=ON_DISK,
    tests=RAW,
)
def _(self):
    return [*self.opened.values()][-1].rows if self.opened else []


@mutant("versions merge by text alone", "leads_pipeline.storage.rows:merged", promise=ONCE, tests=RAW)
def _(rows):
    return sorted({(row.lead_id, row.payload): row for row in sorted(rows, reverse=True)}.values())


@mutant(
    "a lead that comes back counts from when it first came",
    "leads_pipeline.storage.landing:without_returned",
    promise=ONCE,
    tests=RAW,
)
def _(rows, received, gone):
    return rows


@mutant(
    "rows of restricted leads are dropped",
    "leads_pipeline.storage.suppression.gate:Gate._set_aside",
    promise=ONCE,
    tests=GATE,
)
def _(self, place, rows):
    return None


@mutant(
    "a lead that is refused by its contact isn't learned",
    "leads_pipeline.storage.suppression.gate:Gate._learn",
    promise=ERASED,
    tests=LIST,
)
def _(self, meant, leads):
    return False


@mutant(
    "who is restricted again while a restriction is lifted loses rows",
    "leads_pipeline.storage.suppression.gate:Gate._without",
    promise=ONCE,
    tests=GATE,
)
def _(self, place, lead_ids, rows):
    return [row for row in rows if row.lead_id not in lead_ids]


@mutant(
    "a push into an anonymous day keeps its person",
    "leads_pipeline.storage.state:State.key_of_day",
    promise=ERASED,
    tests=STATE,
)
def _(self, day):
    return None


@mutant(
    "each machine has its own key of people", "leads_pipeline.storage.state:State._first", promise=ONCE, tests=STATE
)
def _(self, name, value):
    return value


@mutant(
    "a deleted object stays in the cache", "leads_pipeline.storage.cache:CachedStore.list", promise=ERASED, tests=CACHE
)
def _(self, prefix):
    return self._store.list(prefix)


@mutant(
    "a damaged inventory file counts as whole",
    "leads_pipeline.storage.inventory:_read",
    promise=ON_DISK,
    tests=INVENTORY,
)
def _(content, file):
    table = pq.read_table(pa.BufferReader(content), use_threads=False)
    return list(map(FoundItem, *(table[name].to_pylist() for name in FoundItem._fields)))


@mutant(
    "of two creators both are first",
    "leads_pipeline.storage.store:FolderStore.create_once",
    promise=ERASED,
    tests=STORE,
)
def _(self, key, content):
    self.create(key, content)
    return True


@mutant(
    "a window without leads counts as landed", "leads_pipeline.storage.windows:_state", promise=ASKED, tests=WINDOWS
)
def _(folder, leads, *, has_failed, is_over):
    return WindowState.LANDED


@mutant("a look is made once", "leads_pipeline.domain.due:due", promise=ASKED, tests=DUE)
def _(known, started_at, now):
    return [window for window, looked_at, _ in known if looked_at is None]


# --- retries ----------------------------------------------------------------------------------------------------------


@mutant("Retry-After by date isn't read", "leads_pipeline.portal.pace:parse_retry_after", promise=POLITE, tests=PACE)
def _(value, now):
    return float(value) if value is not None and value.strip().isdigit() else None


@mutant(
    "a run waits as long as it is told",
    "leads_pipeline.portal.pace:RetryPolicy.is_beyond_patience",
    promise=POLITE,
    tests=PACE,
)
def _(self, retry_after_seconds):
    return False


@mutant("answers of an older pace count", "leads_pipeline.portal.pace:Pace.succeeded", promise=POLITE, tests=PACE)
def _(self, pace):
    self._complaints_in_a_row = 0
    self.interval_seconds *= self.RECOVERY_FACTOR


@mutant(
    "a complaint doesn't slow the run", "leads_pipeline.portal.pace:Pace.asked_for_patience", promise=POLITE, tests=PACE
)
def _(self, pace, now, retry_after_seconds):
    self._number += 1


@mutant("a 403 is temporary", "leads_pipeline.portal.verdicts:verdict_on", promise=ASKED, tests=CLIENT)
def _(asked, response, body, advice, now):
    if response.status_code == HTTPStatus.FORBIDDEN:
        return ServerError("no")
    return unbroken(asked, response, body, advice, now)


@mutant(
    "an error repeats what the portal wrote", "leads_pipeline.portal.verdicts:_code_in", promise=SECRET, tests=CLIENT
)
def _(body):
    return f" ({body.decode(errors='replace')})"


@mutant(
    "a run goes on however much fails",
    "leads_pipeline.portal.requests:Requests._give_up_on",
    promise=POLITE,
    tests=CLIENT,
)
def _(self, spec, error):
    return None


@mutant("a cut gzip body counts as whole", "leads_pipeline.portal.http:read_body", promise=ASKED, tests=CLIENT)
def _(response, max_bytes, until):
    try:
        return unbroken(response, max_bytes, until)
    except InvalidAnswerError:
        return b'{"applicants": []}'


@mutant(
    "an answer that speaks of more leads is whole",
    "leads_pipeline.domain.answer:_speaks_of_more",
    promise=ASKED,
    tests=CLIENT,
)
def _(name, value, came, depth):
    return False


@mutant("an hour is left out", "leads_pipeline.portal.leads:_hours", promise=ASKED, tests=CLIENT)
def _(window):
    return unbroken(window)[1:]


# --- settings ---------------------------------------------------------------------------------------------------------


@mutant("plain http goes anywhere", "leads_pipeline.settings:is_loopback", promise=SECRET, tests=SETTINGS)
def _(host):
    return True


@mutant("a secret is taken from two places", "leads_pipeline.settings:only_one", promise=SET, tests=SETTINGS)
def _(given, *names):
    return None


@mutant("a misspelled name is no matter", "leads_pipeline.settings:unknown", promise=SET, tests=SETTINGS)
def _(names):
    return []


@mutant("a pasted character is sent", "leads_pipeline.portal.credentials:client_secret", promise=SET, tests=RESOURCES)
def _(source):
    return source.read()


@mutant("a path counts from any folder", "leads_pipeline.settings:path_of", promise=SET, tests=SETTINGS)
def _(value):
    return Path(value.strip())


# --- tokens and secrets -----------------------------------------------------------------------------------------------


@mutant(
    "a token is used to its last second", "leads_pipeline.portal.tokens:Token.is_usable", promise=TOKENS, tests=AUTH
)
def _(self, now):
    return now < self.fetched_at + self.lifetime_seconds


@mutant("tokens aren't kept", "leads_pipeline.portal.tokens:_read", promise=TOKENS, tests=AUTH)
def _(path):
    return None


@mutant(
    "a refused token isn't renewed",
    "leads_pipeline.portal.tokens:Tokens.is_worth_renewing",
    promise=TOKENS,
    tests=AUTH,
)
def _(self, token):
    return False


@mutant("a secret follows redirects", "leads_pipeline.portal.http:make_client", promise=SECRET, tests=AUTH)
def _(**options):
    client = unbroken(**options)
    client.follow_redirects, client.event_hooks = True, {}
    return client


@mutant(
    "Basic isn't form-encoded", "leads_pipeline.portal.tokens:ClientCredentials.headers", promise=TOKENS, tests=AUTH
)
def _(self, secret):
    pair = base64.b64encode(f"{self.client_id}:{secret}".encode()).decode()
    return {**unbroken(self, secret), **({"Authorization": f"Basic {pair}"} if self.method is AuthMethod.BASIC else {})}


@mutant(
    "a secret shows itself",
    "leads_pipeline.portal.credentials:StaticSecret.__repr__",
    promise=SECRET,
    tests=CREDENTIALS,
)
def _(self):
    return f"StaticSecret({self.value!r})"


@mutant("an error quotes the secret", "leads_pipeline.portal.credentials:_checked", promise=SECRET, tests=CREDENTIALS)
def _(value, named):
    try:
        return unbroken(value, named)
    except CredentialsError:
        raise CredentialsError(f"{named} is wrong: {value!r}") from None


# --- pushes -----------------------------------------------------------------------------------------------------------


@mutant("any key is right", "leads_pipeline.portal.receiver:_digest", promise=PUSHED, tests=RECEIVER)
def _(key):
    return b""


@mutant("X-API-Key isn't read", "leads_pipeline.portal.receiver:_given_keys", promise=PUSHED, tests=RECEIVER)
def _(request):
    given = request.headers.get("authorization", "").encode()
    return [given, given.removeprefix(b"Bearer ")]


# --- alerts -----------------------------------------------------------------------------------------------------------


@mutant("what was told is forgotten", "leads_pipeline.observe.alerts:Alerts._save", promise=TOLD, tests=ALERTS)
def _(self, told):
    return None


@mutant("a short outage is told", "leads_pipeline.observe.alerts:Alerts.tell", promise=TOLD, tests=ALERTS)
def _(self, findings, failed, now):
    return unbroken(self, [replace(one, may_pass=False) for one in findings], failed, now)


@mutant("an unsent message counts as told", "leads_pipeline.observe.alerts:_entry", promise=TOLD, tests=ALERTS)
def _(one, *, is_told=False):
    return unbroken(one, is_told=True)


@mutant("a warning never becomes an error", "leads_pipeline.observe.alerts:_is_news", promise=TOLD, tests=ALERTS)
def _(one, memory):
    return one.key not in memory.open or not memory.open[one.key].is_told


@mutant("a finder that fails ends what it found", "leads_pipeline.observe.alerts:due", promise=TOLD, tests=ALERTS)
def _(memory, shown, kept, now):
    return unbroken(memory, shown, (), now)


@mutant("an open error isn't told again each day", "leads_pipeline.observe.alerts:due", promise=TOLD, tests=ALERTS)
def _(memory, shown, kept, now):
    return unbroken(memory.model_copy(update={"told_at": now}), shown, kept, now)


@mutant(
    "one channel's odd error silences the others", "leads_pipeline.observe.channels:attempt", promise=TOLD, tests=ALERTS
)
def _(name, send):
    try:
        return True, send()
    except LeadsPipelineError as error:
        return False, str(error)


@mutant("a broken channel is forgotten", "leads_pipeline.observe.told:Told.note_attempt", promise=TOLD, tests=ALERTS)
def _(self, channel, trouble, now):
    return None


@mutant("the heartbeat never fails", "leads_pipeline.observe.alerts:Alerts._beat", promise=TOLD, tests=ALERTS)
def _(self, heartbeat, told, now, *, is_well):
    return unbroken(self, heartbeat, told, now, is_well=True)


@mutant("a channel's address is logged", "leads_pipeline.portal.http:unlogged", promise=SECRET, tests=CHANNELS)
def _():
    yield


@mutant("a mail goes out unencrypted", "leads_pipeline.observe.channels:_connected", promise=SECRET, tests=CHANNELS)
def _(name, address):
    return unbroken(name, address._replace(query="tls=none"))


@mutant("a refused recipient isn't told", "leads_pipeline.observe.channels:Email.send", promise=TOLD, tests=CHANNELS)
def _(self, digest):
    unbroken(self, digest)


@mutant("no loss is told", "leads_pipeline.observe.window_findings:windows_lost", promise=TOLD, tests=FINDINGS)
def _(known):
    return iter(())


@mutant(
    "what was acknowledged comes back", "leads_pipeline.storage.state:State.acknowledged", promise=TOLD, tests=FINDINGS
)
def _(self):
    return set()


@mutant("a first start alarms", "leads_pipeline.observe.known:Known.is_expected", promise=TOLD, tests=FINDINGS)
def _(self, row):
    return True


# --- people -----------------------------------------------------------------------------------------------------------


@mutant(
    "an address in other letters is another", "leads_pipeline.domain.person:email_keys", promise=ERASED, tests=PERSON
)
def _(text):
    return frozenset([text.strip()]) if "@" in text else frozenset()


@mutant(
    "who is to be erased may be shared",
    "leads_pipeline.transform.reading:check_follows_list",
    promise=ERASED,
    tests=SHARE,
)
def _(db, data):
    return None


@mutant(
    "a lead that moves to another branch loses its correction",
    "leads_pipeline.storage.suppression.gate:Gate._with_corrections",
    promise="a person's requests do what they say",
    tests=REQUESTS,
)
def _(self, kind, day, rows):
    return rows


@mutant(
    "an erasure is done although leads are left",
    "leads_pipeline.privacy.finding:left_of",
    promise="a receipt is true",
    tests=REQUESTS,
)
def _(data, erasures):
    return {}


@mutant(
    "a lost version is looked for only if raw has no version of the lead",
    "leads_pipeline.privacy.finding:_newest_number",
    promise=ERASED,
    tests=REQUESTS,
)
def _(row):
    return 2**62


@mutant(
    "a sweep is noted before it is published", "leads_pipeline.privacy.sweeping:in_line", promise=ERASED, tests=LIST
)
def _(data):
    swept = sweep(data)
    data.state.note_swept(swept.number)
    yield swept


@mutant(
    "a list that was put back from a backup is the list",
    "leads_pipeline.storage.suppression.files:SuppressionList._guarded",
    promise=ERASED,
    tests=LIST,
)
def _(self):
    return 0, ""


# --- reading and loading leads ----------------------------------------------------------------------------------------


@mutant("what looks like a number is one", "leads_pipeline.transform.reader:_decimal", promise=TYPED, tests=READER)
def _(text):
    return Decimal(text)


@mutant("what looks like a moment is one", "leads_pipeline.transform.reader:_moment", promise=TYPED, tests=READER)
def _(text):
    return datetime.fromisoformat(text)


@mutant("pennies are rounded", "leads_pipeline.transform.reader:_amount", promise=TYPED, tests=READER)
def _(value):
    return round(Decimal(value), 2)


@mutant("unknown members are dropped", "leads_pipeline.transform.reader:_Object.read", promise=TYPED, tests=READER)
def _(self, raw, path, problems):
    value, _ = unbroken(self, raw, path, problems)
    return value, None


@mutant("nobody says what is no JSON", "leads_pipeline.transform.reader:_json_of", promise=TYPED, tests=READER)
def _(payload):
    text, _ = unbroken(payload)
    return text, None


@mutant("a correction is forgotten", "leads_pipeline.transform.reader:_corrected", promise=ERASED, tests=LOAD)
def _(raw, patch):
    return raw


@mutant(
    "new corrections wait for a rewriting", "leads_pipeline.transform.flatten:_statements", promise=ERASED, tests=LOAD
)
def _(kind, zone):
    for statement in unbroken(kind, zone):
        yield statement.replace("received.corrections is null)", "true)")


@mutant("retention believes a wrong clock", "leads_pipeline.privacy.nightly:_cut", promise=ERASED, tests=NIGHT)
def _(data, settings, now, night, portal_time):
    return unbroken(data, settings, now, night, lambda _: now)


@mutant("the oldest version counts", "leads_pipeline.transform.flatten:_statements", promise=ONCE, tests=LOAD)
def _(kind, zone):
    for statement in unbroken(kind, zone):
        yield statement.replace("order by number desc", "order by number")


@mutant(
    "an older version replaces a newer one", "leads_pipeline.transform.flatten:_statements", promise=ONCE, tests=LOAD
)
def _(kind, zone):
    for statement in unbroken(kind, zone):
        yield statement.replace(">= (received.number", "= (received.number")


@mutant("lists of replaced leads stay", "leads_pipeline.transform.flatten:_statements", promise=ONCE, tests=LOAD)
def _(kind, zone):
    for number, statement in enumerate(unbroken(kind, zone)):
        if number != 5:  # the first list
            yield statement


@mutant("a lead's day is that of UTC", "leads_pipeline.transform.flatten:_statements", promise=FIGURES, tests=LOAD)
def _(kind, zone):
    for statement in unbroken(kind, zone):
        yield statement.replace(f"timezone('{zone.key}'", "timezone('UTC'")


@mutant(
    "corrected leads keep their old text",
    "leads_pipeline.transform.publish:_lower_numbers",
    promise=ERASED,
    tests=PUBLISH,
)
def _(db, windows):
    return None


@mutant("lowered numbers stay lowered", "leads_pipeline.transform.publish:_raise_numbers", promise=ONCE, tests=PUBLISH)
def _(db):
    return None


@mutant("a rewriting keeps old blocks", "leads_pipeline.transform.duck:write_anew", promise=ERASED, tests=PUBLISH)
def _(data, file, anew):
    file.rename(anew)


@mutant(
    "a file of other marts is updated", "leads_pipeline.transform.publish:_fingerprint", promise=FIGURES, tests=PUBLISH
)
def _(content):
    return ""


@mutant("nobody counts what is published", "leads_pipeline.transform.publish:_check", promise=ONCE, tests=PUBLISH)
def _(db):
    return None


@mutant("leads go with their raw files", "leads_pipeline.transform.publish:_take_over", promise=ONCE, tests=PUBLISH)
def _(db, zone):
    return 0


@mutant(
    "nobody asks who else has the file open",
    "leads_pipeline.transform.reading:is_open_for_writing",
    promise=ONCE,
    tests=PUBLISH,
)
def _(file):
    return False


@mutant("any file can be read", "leads_pipeline.transform.reading:is_readable", promise=ONCE, tests=PUBLISH)
def _(data, name, file, tables=None):
    return True


@mutant("any bytes are whole", "leads_pipeline.transform.versions:Versions.has_its_hash", promise=ONCE, tests=PUBLISH)
def _(self):
    return True


@mutant(
    "a file that is there is as it was published",
    "leads_pipeline.transform.versions:Versions.is_as_published",
    promise=ONCE,
    tests=(*PUBLISH, *PUBLISHING),
)
def _(self):
    return self.path.exists()


@mutant("a lost feed counts from one", "leads_pipeline.transform.feed:_append", promise=FOLLOWED, tests=FEED)
def _(db, changes, at):
    [(highest,)] = db.execute("select coalesce(max(number), 0) from lead_feed").fetchall()
    db.execute(f"insert into lead_feed select {highest} + row_number() over (), *, $at from ({changes})", {"at": at})
    return highest


@mutant("the feed trusts the clock", "leads_pipeline.transform.feed:_append", promise=FOLLOWED, tests=FEED)
def _(db, changes, at):
    after = int(at.timestamp() * 1e6)
    db.execute(f"insert into lead_feed select {after} + row_number() over (), *, $at from ({changes})", {"at": at})
    return after


@mutant("anonymous leads stay in the feed", "leads_pipeline.transform.feed:_is_named", promise=ERASED, tests=FEED)
def _(named_from):
    return "true"


@mutant("the feed looks at no list", "leads_pipeline.transform.feed:_compare", promise=FOLLOWED, tests=FEED)
def _(db, kind, table, was_there, is_there):
    if table == kind.table:
        unbroken(db, kind, table, was_there, is_there)


@mutant(
    "each publication begins the feed anew", "leads_pipeline.transform.publish:_follow", promise=FOLLOWED, tests=FEED
)
def _(db, content, feed_from, *, of_all):
    return begin_feed(db, content.at, content.named_from)


@mutant("a new file leaves out who is gone", "leads_pipeline.transform.publish:_follow", promise=FOLLOWED, tests=FEED)
def _(db, content, feed_from, *, of_all):
    return unbroken(db, content, feed_from, of_all=False)


@mutant(
    "typed tables are counted and not read",
    "leads_pipeline.transform.typed:count_rows",
    promise=TOLD,
    tests=VERIFICATION,
)
def _(table):
    return sum(pq.read_metadata(file).num_rows for file in table.glob("*/data.parquet"))


@mutant(
    "verify reads raw files and counts nothing",
    "leads_pipeline.observe.verification:_count",
    promise=TOLD,
    tests=VERIFICATION,
)
def _(db, data, kind, raw):
    return unbroken(db, data, kind, set())


@mutant("doctor shows no finding", "leads_pipeline.observe.questions:seen", promise=TOLD, tests=QUESTIONS)
def _(finding):
    return Seen("findings", Light.GREEN, "No error or warning is open.")


@mutant("a damaged raw file counts as read", "leads_pipeline.transform.publish:_noting", promise=ONCE, tests=DAMAGE)
def _(batches, hashes):
    return batches


@mutant(
    "a lost version's number is given again",
    "leads_pipeline.transform.versions:Versions.next_number",
    promise=ONCE,
    tests=TYPED_FILES,
)
def _(self):
    return max(map(number_of, self._files()), default=0) + 1


@mutant(
    "an older version stays beside a rewritten one",
    "leads_pipeline.transform.versions:Versions.remove_older",
    promise=ERASED,
    tests=PUBLISH,
)
def _(self, but):
    return unbroken(self, 1)


@mutant(
    "who is erased stays if raw has lost their leads",
    "leads_pipeline.orchestration.publish_folder:_refuse",
    promise=ERASED,
    tests=REQUESTS,
)
def _(suppressed, before, db):
    return None


@mutant(
    "who objects is noted for the leads of that moment",
    "leads_pipeline.orchestration.publish_folder:_note_who_objects",
    promise=ERASED,
    tests=REQUESTS,
)
def _(db, objecting, *, is_whole):
    if is_whole:
        unbroken(db, objecting, is_whole=is_whole)


@mutant(
    "tables of an earlier release stay",
    "leads_pipeline.orchestration.publish_folder:_delete_former",
    promise=ERASED,
    tests=PUBLISHING,
)
def _(data):
    return None


@mutant("no day's marts are made anew", "leads_pipeline.transform.tables:is_of", promise=FIGURES, tests=MART_FILES)
def _(days):
    return "false"


@mutant(
    "an erased person stays in a mart that fails",
    "leads_pipeline.transform.marts:_keep_last_good",
    promise=ERASED,
    tests=MART_FILES,
)
def _(db, mart, folder, *, is_rewritten):
    return None


@mutant(
    "an own mart opens files",
    "leads_pipeline.transform.own_table:_make",
    promise=OWN,
    tests=OWN_MARTS,
)
def _(folder, leads, task):
    if task.statement is None:
        return unbroken(folder, leads, task)
    with connection(folder) as db:
        db.execute(f"attach '{task.made}' as made (storage_version 'v1.0.0')")
        db.execute(f"attach '{leads}' as leads (read_only)")
        db.execute("use leads")
        try:
            db.execute(f'create table made.main."{task.name}" as {task.statement}')
        except duckdb.Error as error:
            return False, str(error)
    return True, None


@mutant("an own mart's error quotes a lead", "leads_pipeline.transform.own_table:told", promise=OWN, tests=OWN_MARTS)
def _(error, *, is_file=False):
    return str(error)


@mutant(
    "an own file takes the place of one of our tables",
    "leads_pipeline.transform.own_marts:_problem_of_name",
    promise=OWN,
    tests=OWN_MARTS,
)
def _(name, others):
    return None


@mutant(
    "a changed own mart waits for leads", "leads_pipeline.transform.own_marts:look_of", promise=FRESH, tests=PUBLISHING
)
def _(folder):
    return ""


@mutant(
    "an erased person stays in an own mart that fails",
    "leads_pipeline.transform.own_marts:keep_own_tables",
    promise=ERASED,
    tests=OWN_MARTS,
)
def _(db, own, *, is_rewritten):
    unbroken(db, own, is_rewritten=False)


@mutant(
    "old days keep showing a new value as unknown",
    "leads_pipeline.transform.marts:_make_words",
    promise=FIGURES,
    tests=MART_FILES,
)
def _(db):
    is_first = not db.execute("from pipeline.words").fetchall()
    return unbroken(db) and is_first


@mutant("drift names what one lead has", "leads_pipeline.transform.drift:drift_statement", promise=ERASED, tests=DRIFT)
def _(first_day):
    return unbroken(first_day).replace("count(distinct sender)", "count(*)")


@mutant("drift has no memory", "leads_pipeline.transform.drift:drift_statement", promise=FIGURES, tests=DRIFT)
def _(first_day):
    return unbroken(first_day).replace(first_day.isoformat(), "2026-11-20")


@mutant("touched days are left out", "leads_pipeline.transform.typed:_write_days", promise=ONCE, tests=TYPED_FILES)
def _(db, table, folder, days):
    return None


@mutant("untouched days are left out", "leads_pipeline.transform.typed:_link_days", promise=ONCE, tests=TYPED_FILES)
def _(before, table, days):
    return None


@mutant("each tree stays", "leads_pipeline.transform.typed:number_of", promise=ERASED, tests=TYPED_FILES)
def _(path):
    if path.name.startswith("tables-") and not [*path.parent.glob(f"leads-{unbroken(path)}-*.duckdb")]:
        return max(unbroken(version) for version in path.parent.glob("leads-*.duckdb"))
    return unbroken(path)


@mutant("old Delta files stay", "leads_pipeline.transform.delta:delete_tables", promise=ERASED, tests=DELTA)
def _(store, prefix="tables/"):
    store.delete([key for key in store.list(prefix) if "/_delta_log/" in key])


@mutant(
    "a Delta table keeps rows from before a kill",
    "leads_pipeline.transform.delta:_written_for",
    promise=ONCE,
    tests=DELTA,
)
def _(table):
    import pathlib

    folder = pathlib.Path(table.table_uri.removeprefix("file://")).parents[1]
    return max(number_of(version) for version in (folder / ".versions").glob("leads-*.duckdb"))


# --- orchestration ----------------------------------------------------------------------------------------------------


@mutant("a second run is asked for", "leads_pipeline.orchestration.pulling:is_under_way", promise=POLITE, tests=PULLING)
def _(instance, job):
    return False


@mutant("a start changes nothing", "leads_pipeline.orchestration.pulling:note_start", promise=ASKED, tests=PULLING)
def _(state, daemon, now):
    return None


@mutant(
    "the day under way is never listed",
    "leads_pipeline.orchestration.pulling:known_windows",
    promise=ASKED,
    tests=PULLING,
)
def _(store, kind, scopes, zone, first_day, now):
    return [row for row in unbroken(store, kind, scopes, zone, first_day, now) if row.window.is_closed(now)]


@mutant(
    "failed windows aren't red",
    "leads_pipeline.orchestration.dagster_compat:show_as_planned",
    promise=SHOWN,
    tests=PULLING,
)
def _(context, key):
    return None


@mutant("each look is shown", "leads_pipeline.orchestration.raw_leads:_Pull._is_news", promise=SHOWN, tests=PULLING)
def _(self, answer, landed):
    return True


@mutant(
    "what a killed run has landed stays unseen",
    "leads_pipeline.orchestration.raw_leads:_Pull._not_shown",
    promise=SHOWN,
    tests=PULLING,
)
def _(self, partitions):
    return set()


@mutant("a failure isn't noted", "leads_pipeline.orchestration.raw_leads:_Pull._failed", promise=POLITE, tests=PULLING)
def _(self, window, error):
    self._data.raw.fail = lambda *_, **__: None
    yield from unbroken(self, window, error)


@mutant(
    "assets stay as they are made",
    "leads_pipeline.orchestration.catalog:with_conventions",
    promise=SHOWN,
    tests=CATALOG,
)
def _(assets, settings):
    return list(assets)


@mutant(
    "a publication follows the other at once",
    "leads_pipeline.storage.publications:Publications.next_at",
    promise=FRESH,
    tests=PUBLISHING,
)
def _(self, *, is_urgent=False):
    return None


@mutant(
    "no night is published",
    "leads_pipeline.storage.publications:Publications.is_night_due",
    promise=FRESH,
    tests=PUBLISHING,
)
def _(self, zone, now):
    return False


@mutant(
    "what lands during a publication is forgotten",
    "leads_pipeline.orchestration.publish_sensor:noted_publication",
    promise=FRESH,
    tests=PUBLISHING,
)
def _(data, zone, *, is_nightly, clock):
    yield
    yield from [None for _ in unbroken(data, zone, is_nightly=is_nightly, clock=clock)][1:]


@mutant("each event connects", "leads_pipeline.orchestration.event_log:_engine", promise=SHOWN, tests=EVENT_LOG)
def _(address):
    return sqlalchemy.create_engine(address, poolclass=sqlalchemy.NullPool)


# --- published tables, report, Delta ----------------------------------------------------------------------------------

sql_mutant(
    "people are counted per lead",
    "sql/mart_leads_daily.sql",
    "count(distinct person) as people",
    "count(person) as people",
    promise=FIGURES,
    tests=MARTS,
)
sql_mutant(
    "who objected is called",
    "sql/mart_hidden_valuations.sql",
    "and person not in (select person from pipeline.objected)",
    "",
    promise=ERASED,
    tests=MART_FILES,
)
sql_mutant(
    "the two kinds are mixed up",
    "sql/mart_people.sql",
    "count(*) filter (kind = 'applicant') as applicant_leads",
    "count(*) filter (kind = 'appraisal') as applicant_leads",
    promise=FIGURES,
    tests=MARTS,
)
sql_mutant(
    "an odd day is compared with itself",
    "sql/checks/volumes_are_as_usual.sql",
    "between newest - 56 and newest - 7",
    "between newest - 56 and newest",
    promise=TOLD,
    tests=CHECKS,
)
sql_mutant(
    "today counts in the report's week",
    "sql/report/branches.sql",
    "from mart_people_daily, days\n    where lead_day between full_day - 13 and full_day",
    "from mart_people_daily, days\n    where lead_day >= full_day - 13",
    promise=FIGURES,
    tests=REPORT,
)
sql_mutant(
    "a Sunday is compared with Mondays",
    "sql/checks/volumes_are_as_usual.sql",
    " and isodow(day) = isodow(newest)",
    "",
    promise=TOLD,
    tests=CHECKS,
)
sql_mutant(
    "bands of prices have no end",
    "sql/mart_listing_demand.sql",
    "least(floor(banded / band_width)::bigint * band_width, last_band)",
    "floor(banded / band_width)::bigint * band_width",
    promise=FIGURES,
    tests=MARTS,
)


# --- backups ----------------------------------------------------------------------------------------------------------


@mutant(
    "a damaged file is copied into a backup",
    "leads_pipeline.storage.backup:hash_in",
    promise=RESTORED,
    tests=BACKUP,
)
def _(key):
    return ""


@mutant(
    "a name that vanished isn't looked for again",
    "leads_pipeline.storage.backup:_Draft._add_all",
    promise=RESTORED,
    tests=BACKUP,
)
def _(self, keys, list_again):
    for key in keys:
        self._add(key)


@mutant(
    "the suppression list of a backup wins",
    "leads_pipeline.storage.restore:_keep_longer_list",
    promise=ERASED,
    tests=BACKUP,
)
def _(data, under_way):
    shutil.copytree(under_way / "privacy", data.gate.entries.folder, dirs_exist_ok=True)


@mutant(
    "a damaged file of a backup is restored", "leads_pipeline.storage.restore:hash_in", promise=RESTORED, tests=BACKUP
)
def _(key):
    return ""


@mutant("the oldest backups stay", "leads_pipeline.storage.backup:snapshots", promise=RESTORED, tests=BACKUP)
def _(target, now):
    return list(reversed(unbroken(target, now)))


# --- delivery ---------------------------------------------------------------------------------------------------------


@mutant("a redirect counts as delivered", "leads_pipeline.delivery.sending:_outcome", promise=DELIVERED, tests=DELIVERY)
def _(version, answer, now):
    if answer.status_code < 400:
        answer.status_code = 200
    return unbroken(version, answer, now)


@mutant(
    "a delivered version stays waiting",
    "leads_pipeline.delivery.ledger:Ledger.delivered",
    promise=DELIVERED,
    tests=DELIVERY,
)
def _(self, version, host, now):
    return None


@mutant("an emptied contact is delivered", "leads_pipeline.delivery.due:_contact", promise=DELIVERED, tests=DELIVERY)
def _(kind, row, version):
    return 0


@mutant(
    "a text that comes back counts as delivered",
    "leads_pipeline.delivery.message:webhook_id",
    promise=DELIVERED,
    tests=DELIVERY,
)
def _(version):
    return unbroken(version._replace(version=version.version.partition("-")[0]))


@mutant(
    "an endpoint that is away is asked all the time",
    "leads_pipeline.delivery.sending:_is_paused",
    promise=POLITE,
    tests=DELIVERY,
)
def _(ledger, now):
    return False


@mutant(
    "a lead's message runs as a formula in a CSV",
    "leads_pipeline.transform.export:_harmless",
    promise="no text that somebody wrote runs in a spreadsheet",
    tests=EXPORT,
)
def _(text):
    return text


@mutant(
    "a receipt forgets the exports",
    "leads_pipeline.storage.state:State.exports",
    promise="the receipt names each place that an erasure doesn't reach",
    tests=REQUESTS,
)
def _(self):
    return []


@mutant(
    "a long text is too long for Excel",
    "leads_pipeline.transform.export:_cell",
    promise="Excel opens an exported workbook without repairing it",
    tests=EXPORT,
)
def _(value):
    return value
