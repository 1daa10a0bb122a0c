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
    from leads_pipeline.storage.rows import open_raw
    from leads_pipeline.storage.windows import WindowState
    from leads_pipeline.transform.duck import connection
    from leads_pipeline.transform.versions import number_of

DURABLE = "storage/test_durable.py"
STORE = "storage/test_store.py"
RAW = "storage/test_raw.py"
WINDOWS = "storage/test_windows.py"
GATE = "privacy/test_gate.py"
STATE = "storage/test_state.py"
CACHE = "storage/test_cache.py"
INVENTORY = "storage/test_inventory.py"
DUE = "domain/test_due.py"
PACE = "portal/test_pace.py"
WINDOW = "domain/test_window.py"
AUTH = "portal/test_tokens.py"
CLIENT = "portal/test_client.py"
WILD = "portal/test_answers_in_the_wild.py"
CREDENTIALS = "portal/test_credentials.py"
RECEIVER = "portal/test_receiver.py"
PAGES = "cli/test_pages.py"
ALERTS = "observe/test_alerts.py"
FINDINGS = "observe/test_findings.py"
CHANNELS = "observe/test_channels.py"
PERSON = "domain/test_person.py"
READER = "transform/test_reader.py"
LOAD = "transform/test_load.py"
PUBLISH = "transform/test_publish.py"
DAMAGE = "storage/test_damage.py"
VERIFICATION = "observe/test_verification.py"
QUESTIONS = "observe/test_questions.py"
REQUESTS = "privacy/test_requests.py"
FEED = "transform/test_feed.py"
MARTS = "transform/test_marts.py"
MART_FILES = "transform/test_mart_files.py"
OWN_MARTS = "transform/test_own_marts.py"
TYPED_FILES = "transform/test_typed.py"
DRIFT = "transform/test_drift.py"
CHECKS = "transform/test_checks.py"
REPORT = "transform/test_report.py"
DELTA = "transform/test_delta.py"
BACKUP = "storage/test_backup.py"
SHARE = "privacy/test_share.py"
EXPORT = "transform/test_export.py"
SETTINGS = "test_settings.py"
RESOURCES = "orchestration/test_resources.py"
LIST = "privacy/test_suppression.py"
NIGHT = "privacy/test_privacy_sweep.py"
PULLING = "orchestration/test_pulling.py"
PUBLISHING = "orchestration/test_publish_changes.py"
CATALOG = "orchestration/test_conventions.py"
EVENT_LOG = "orchestration/test_kept_event_log.py"
DELIVERY = "delivery/test_delivery.py"

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
OWN_PAGES = "the UI obeys only its own pages"
ERASED = "an erased person stays erased"
DELIVERED = "each version of a lead reaches the agency's endpoint once, in order"
RESTORED = "a backup brings everything back"


# --- durable bytes ----------------------------------------------------------------------------------------------------


@mutant("nothing is synced", "storage.durable:sync", ON_DISK, DURABLE)
def _(path):
    return None


@mutant("the folder isn't synced", "storage.durable:replace_file", ON_DISK, DURABLE)
def _(path, content):
    with storing(path), drafted(path, content) as draft:
        draft.replace(path)


@mutant("files are open to others", "storage.durable:write_new", PRIVATE, DURABLE)
def _(draft, content):
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644), "wb") as file:
        file.write(content)


# --- windows and days -------------------------------------------------------------------------------------------------


@mutant("each day has 24 hours", "domain.window:day_interval", DAYS, WINDOW)
def _(day, zone):
    start = datetime.combine(day, time.min, tzinfo=zone).astimezone(UTC)
    return start, start + timedelta(days=1)


@mutant("a window counts as deleted too early", "domain.window:Window.is_deleted", ASKED, WINDOW)
def _(self, now):
    return self.start <= now - RETENTION


@mutant("a day under way counts as over", "domain.window:Window.is_closed", ASKED, WINDOW)
def _(self, now):
    return self.start <= now


# --- raw windows and what is due -------------------------------------------------------------------------------------


@mutant("a damaged raw file counts as whole", "storage.landing:_opened", ON_DISK, RAW)
def _(content, file):
    return open_raw(content)


@mutant("a list that grows during a landing isn't seen", "storage.landing:Raw._follow_list", ERASED, RAW)
def _(self, place, number):
    return None


@mutant("only the newest file of a window is read", "storage.landing:Contents.rows", ON_DISK, RAW)
def _(self):
    return [*self.opened.values()][-1].rows if self.opened else []


@mutant("versions merge by text alone", "storage.rows:merged", ONCE, RAW)
def _(rows):
    return sorted({(row.lead_id, row.payload): row for row in sorted(rows, reverse=True)}.values())


@mutant("a lead that comes back counts from when it first came", "storage.landing:without_returned", ONCE, RAW)
def _(rows, received, gone):
    return rows


@mutant("rows of restricted leads are dropped", "storage.suppression.gate:Gate._set_aside", ONCE, GATE)
def _(self, place, rows):
    return None


@mutant("a lead that is refused by its contact isn't learned", "storage.suppression.gate:Gate._learn", ERASED, LIST)
def _(self, meant, leads):
    return False


@mutant(
    "who is restricted again while a restriction is lifted loses rows",
    "storage.suppression.gate:Gate._without",
    ONCE,
    GATE,
)
def _(self, place, landed, rows):
    return [row for row in unbroken(self, place, landed, rows) if row.lead_id not in landed]


@mutant("a push into an anonymous day keeps its person", "storage.state:State.key_of_day", ERASED, STATE)
def _(self, day):
    return None


@mutant("each machine has its own key of people", "storage.state:State._first", ONCE, STATE)
def _(self, name, value):
    return value


@mutant("a deleted object stays in the cache", "storage.cache:CachedStore.list", ERASED, CACHE)
def _(self, prefix):
    return self._store.list(prefix)


@mutant("a damaged inventory file counts as whole", "storage.inventory:_read", ON_DISK, INVENTORY)
def _(content, file):
    table = pq.read_table(pa.BufferReader(content), use_threads=False)
    return list(map(FoundItem, *(table[name].to_pylist() for name in FoundItem._fields)))


@mutant("of two creators both are first", "storage.store:FolderStore.create_once", ERASED, STORE)
def _(self, key, content):
    self.create(key, content)
    return True


@mutant("a window without leads counts as landed", "storage.windows:_state", ASKED, WINDOWS)
def _(folder, leads, *, has_failed, is_over):
    return WindowState.LANDED


@mutant("a look is made once", "domain.due:due", ASKED, DUE)
def _(known, started_at, now):
    return [window for window, looked_at, _ in known if looked_at is None]


# --- retries ----------------------------------------------------------------------------------------------------------


@mutant("Retry-After by date isn't read", "portal.pace:parse_retry_after", POLITE, PACE)
def _(value, now):
    return float(value) if value is not None and value.strip().isdigit() else None


@mutant("a run waits as long as it is told", "portal.pace:RetryPolicy.is_beyond_patience", POLITE, PACE)
def _(self, retry_after_seconds):
    return False


@mutant("answers of an older pace count", "portal.pace:Pace.succeeded", POLITE, PACE)
def _(self, pace):
    self._complaints_in_a_row = 0
    self.interval_seconds *= self.RECOVERY_FACTOR


@mutant("a complaint doesn't slow the run", "portal.pace:Pace.asked_for_patience", POLITE, PACE)
def _(self, pace, now, retry_after_seconds):
    self._number += 1


@mutant("a 403 is temporary", "portal.verdicts:verdict_on", ASKED, CLIENT)
def _(asked, response, body, advice, now):
    if response.status_code == HTTPStatus.FORBIDDEN:
        return ServerError("no")
    return unbroken(asked, response, body, advice, now)


@mutant("an error repeats what the portal wrote", "portal.verdicts:_code_in", SECRET, CLIENT)
def _(body):
    return f" ({body.decode(errors='replace')})"


@mutant("a run goes on however much fails", "portal.requests:Requests._give_up_on", POLITE, CLIENT)
def _(self, spec, error):
    return None


@mutant("a cut gzip body counts as whole", "portal.http:read_body", ASKED, WILD)
def _(response, max_bytes, until):
    try:
        return unbroken(response, max_bytes, until)
    except InvalidAnswerError:
        return b'{"applicants": []}'


@mutant("an answer that speaks of more leads is whole", "domain.answer:_speaks_of_more", ASKED, CLIENT)
def _(name, value, came, depth):
    return False


@mutant("an hour is left out", "portal.leads:_hours", ASKED, CLIENT)
def _(window):
    return unbroken(window)[1:]


# --- settings ---------------------------------------------------------------------------------------------------------


@mutant("plain http goes anywhere", "settings:is_loopback", SECRET, SETTINGS)
def _(host):
    return True


@mutant("a secret is taken from two places", "settings:only_one", SET, SETTINGS)
def _(given, *names):
    return None


@mutant("a misspelled name is no matter", "settings:unknown", SET, SETTINGS)
def _(names):
    return []


@mutant("a pasted character is sent", "portal.credentials:client_secret", SET, RESOURCES)
def _(source):
    return source.read()


@mutant("a path counts from any folder", "settings:path_of", SET, SETTINGS)
def _(value):
    return Path(value.strip())


# --- tokens and secrets -----------------------------------------------------------------------------------------------


@mutant("a token is used to its last second", "portal.tokens:Token.is_usable", TOKENS, AUTH)
def _(self, now):
    return now < self.fetched_at + self.lifetime_seconds


@mutant("tokens aren't kept", "portal.tokens:_read", TOKENS, AUTH)
def _(path):
    return None


@mutant("a refused token isn't replaced", "portal.tokens:Tokens._is_good", TOKENS, AUTH)
def _(self, token, refused):
    return token.is_usable(self._clock())


@mutant("a secret follows redirects", "portal.http:make_client", SECRET, AUTH)
def _(**options):
    client = unbroken(**options)
    client.follow_redirects, client.event_hooks = True, {}
    return client


@mutant("Basic isn't form-encoded", "portal.tokens:ClientCredentials.headers", TOKENS, AUTH)
def _(self, secret):
    pair = base64.b64encode(f"{self.client_id}:{secret}".encode()).decode()
    return {**unbroken(self, secret), **({"Authorization": f"Basic {pair}"} if self.method is AuthMethod.BASIC else {})}


@mutant("a secret shows itself", "settings:Secret.__repr__", SECRET, CREDENTIALS)
def _(self):
    return f"Secret({self.value!r})"


@mutant("an error quotes the secret", "portal.credentials:_checked", SECRET, CREDENTIALS)
def _(value, named):
    try:
        return unbroken(value, named)
    except CredentialsError:
        raise CredentialsError(f"{named} is wrong: {value!r}") from None


# --- pushes -----------------------------------------------------------------------------------------------------------


@mutant("any key is right", "portal.receiver:_digest", PUSHED, RECEIVER)
def _(key):
    return b""


@mutant("X-API-Key isn't read", "portal.receiver:_given_keys", PUSHED, RECEIVER)
def _(request):
    given = request.headers.get("authorization", "").encode()
    return [given, given.removeprefix(b"Bearer ")]


# --- alerts -----------------------------------------------------------------------------------------------------------


@mutant("what was told is forgotten", "observe.alerts:Alerts._save", TOLD, ALERTS)
def _(self, told):
    return None


@mutant("a short outage is told", "observe.alerts:Alerts.tell", TOLD, ALERTS)
def _(self, findings, failed, now):
    return unbroken(self, [replace(one, may_pass=False) for one in findings], failed, now)


@mutant("an unsent message counts as told", "observe.channels:attempt", TOLD, ALERTS)
def _(name, send):
    return True, unbroken(name, send)[1]


@mutant("a warning never becomes an error", "observe.alerts:_is_news", TOLD, ALERTS)
def _(one, memory):
    return one.key not in memory.open


@mutant("a finder that fails ends what it found", "observe.alerts:due", TOLD, ALERTS)
def _(memory, shown, kept, now):
    return unbroken(memory, shown, (), now)


@mutant("an open error isn't told again each day", "observe.alerts:due", TOLD, ALERTS)
def _(memory, shown, kept, now):
    return unbroken(memory.model_copy(update={"told_at": now}), shown, kept, now)


@mutant("one channel's odd error silences the others", "observe.channels:attempt", TOLD, ALERTS)
def _(name, send):
    try:
        return True, send()
    except LeadsPipelineError as error:
        return False, str(error)


@mutant("a broken channel is forgotten", "observe.alerts:Told.note_attempt", TOLD, ALERTS)
def _(self, channel, trouble, now):
    return None


@mutant("the heartbeat never fails", "observe.alerts:Alerts._beat", TOLD, ALERTS)
def _(self, heartbeat, told, now, *, is_well):
    return unbroken(self, heartbeat, told, now, is_well=True)


@mutant("a channel's address is logged", "portal.http:_tells_no_address", SECRET, CHANNELS)
def _(_record):
    return True


@mutant("a mail goes out unencrypted", "observe.channels:_connected", SECRET, CHANNELS)
def _(name, address):
    return unbroken(name, address._replace(query="tls=none"))


@mutant("a refused recipient isn't told", "observe.channels:Email.send", TOLD, CHANNELS)
def _(self, digest):
    unbroken(self, digest)


@mutant("no loss is told", "observe.window_findings:windows_lost", TOLD, FINDINGS)
def _(known):
    return iter(())


@mutant("what was acknowledged comes back", "storage.state:State.acknowledged", TOLD, FINDINGS)
def _(self):
    return set()


@mutant("a first start alarms", "observe.known:Known.is_expected", TOLD, FINDINGS)
def _(self, row):
    return True


# --- people -----------------------------------------------------------------------------------------------------------


@mutant("an address in other letters is another", "domain.person:email_keys", ERASED, PERSON)
def _(text):
    return frozenset([text.strip()]) if "@" in text else frozenset()


@mutant("who is to be erased may be shared", "transform.reading:check_follows_list", ERASED, SHARE)
def _(db, data):
    return None


@mutant(
    "a lead that moves to another branch loses its correction",
    "storage.suppression.gate:Gate._with_corrections",
    "a person's requests do what they say",
    REQUESTS,
)
def _(self, window, rows):
    return rows


@mutant("an erasure is done although leads are left", "privacy.finding:left_of", "a receipt is true", REQUESTS)
def _(data, erasures):
    return {}


@mutant(
    "a lost version is looked for only if raw has no version of the lead",
    "privacy.finding:_Look._of_tables",
    ERASED,
    REQUESTS,
)
def _(self, in_raw):
    newest = {
        kind: [one.set_column(1, "number", pa.array([2**62] * len(one), pa.int64())) for one in tables]
        for kind, tables in in_raw.items()
    }
    return unbroken(self, newest)


@mutant("a sweep meets no lead that leads.duckdb alone has", "privacy.finding:learn_lost", ERASED, REQUESTS)
def _(data):
    return None


@mutant("a sweep is noted before it is published", "privacy.sweeping:in_line", ERASED, LIST)
def _(data):
    swept = sweep(data)
    data.state.note_swept(swept.number)
    yield swept


@mutant(
    "a list that was put back from a backup is the list",
    "storage.suppression.files:SuppressionList._guarded",
    ERASED,
    LIST,
)
def _(self):
    return 0, ""


# --- reading and loading leads ----------------------------------------------------------------------------------------


@mutant("what looks like a number is one", "transform.reader:_decimal", TYPED, READER)
def _(text):
    return Decimal(text)


@mutant("what looks like a moment is one", "transform.reader:_moment", TYPED, READER)
def _(text):
    return datetime.fromisoformat(text)


@mutant("pennies are rounded", "transform.reader:_amount", TYPED, READER)
def _(value):
    return round(Decimal(value), 2)


@mutant("unknown members are dropped", "transform.reader:_Object.read", TYPED, READER)
def _(self, raw, path, problems):
    value, _ = unbroken(self, raw, path, problems)
    return value, None


@mutant("nobody says what is no JSON", "transform.reader:_json_of", TYPED, READER)
def _(payload):
    text, _ = unbroken(payload)
    return text, None


@mutant("a correction is forgotten", "storage.rows:_patched", ERASED, LOAD)
def _(text, patch):
    return text if isinstance(text, bytes) else text.encode()


@mutant("new corrections wait for a rewriting", "transform.flatten:_statements", ERASED, LOAD)
def _(kind, zone):
    for statement in unbroken(kind, zone):
        yield statement.replace("not received.is_corrected)", "true)")


@mutant("retention believes a wrong clock", "privacy.nightly:_cut", ERASED, NIGHT)
def _(data, settings, now, night, portal_time):
    return unbroken(data, settings, now, night, lambda _: now)


@mutant("the oldest version counts", "transform.flatten:_statements", ONCE, LOAD)
def _(kind, zone):
    for statement in unbroken(kind, zone):
        yield statement.replace("order by number desc", "order by number")


@mutant("an older version replaces a newer one", "transform.flatten:_statements", ONCE, LOAD)
def _(kind, zone):
    for statement in unbroken(kind, zone):
        yield statement.replace(">= (received.number", "= (received.number")


@mutant("lists of replaced leads stay", "transform.flatten:_statements", ONCE, LOAD)
def _(kind, zone):
    for number, statement in enumerate(unbroken(kind, zone)):
        if number != 5:  # the first list
            yield statement


@mutant("a lead's day is that of UTC", "transform.flatten:_statements", FIGURES, LOAD)
def _(kind, zone):
    for statement in unbroken(kind, zone):
        yield statement.replace(f"timezone('{zone.key}'", "timezone('UTC'")


@mutant("corrected leads keep their old text", "transform.publish:_lower_numbers", ERASED, PUBLISH)
def _(db, windows):
    return None


@mutant("lowered numbers stay lowered", "transform.publish:_raise_numbers", ONCE, PUBLISH)
def _(db):
    return None


@mutant("a rewriting keeps old blocks", "transform.duck:write_anew", ERASED, PUBLISH)
def _(data, file, anew):
    file.rename(anew)


@mutant("a file of other marts is updated", "transform.publish:_fingerprint", FIGURES, PUBLISH)
def _(content):
    return ""


@mutant("nobody counts what is published", "transform.publish:_check", ONCE, PUBLISH)
def _(db):
    return None


@mutant("leads go with their raw files", "transform.publish:_take_over", ONCE, PUBLISH)
def _(db, zone):
    return 0


@mutant("nobody asks who else has the file open", "transform.reading:is_open_for_writing", ONCE, PUBLISH)
def _(file):
    return False


@mutant("any file can be read", "transform.reading:is_readable", ONCE, PUBLISH)
def _(folder, file, tables=None):
    return True


@mutant("any bytes are whole", "transform.versions:Versions.has_its_hash", ONCE, PUBLISH)
def _(self):
    return True


@mutant(
    "a file that is there is as it was published",
    "transform.versions:Versions.is_as_published",
    ONCE,
    PUBLISH,
    PUBLISHING,
)
def _(self):
    return self.path.exists()


@mutant("a lost feed counts from one", "transform.feed:_append", FOLLOWED, FEED)
def _(db, changes, at):
    [(highest,)] = db.execute("select coalesce(max(number), 0) from lead_feed").fetchall()
    db.execute(f"insert into lead_feed select {highest} + row_number() over (), *, $at from ({changes})", {"at": at})
    return highest


@mutant("the feed trusts the clock", "transform.feed:_append", FOLLOWED, FEED)
def _(db, changes, at):
    after = int(at.timestamp() * 1e6)
    db.execute(f"insert into lead_feed select {after} + row_number() over (), *, $at from ({changes})", {"at": at})
    return after


@mutant("anonymous leads stay in the feed", "transform.feed:_is_named", ERASED, FEED)
def _(named_from):
    return "true"


@mutant("the feed looks at no list", "transform.feed:_compare", FOLLOWED, FEED)
def _(db, kind, table, was_there, is_there):
    if table == kind.table:
        unbroken(db, kind, table, was_there, is_there)


@mutant("each publication begins the feed anew", "transform.publish:_follow", FOLLOWED, FEED)
def _(db, content, feed_from, *, of_all):
    return unbroken(db, content, None, of_all=of_all)


@mutant("a new file leaves out who is gone", "transform.publish:_follow", FOLLOWED, FEED)
def _(db, content, feed_from, *, of_all):
    return unbroken(db, content, feed_from, of_all=False)


@mutant("typed tables are counted and not read", "transform.typed:count_rows", TOLD, VERIFICATION)
def _(table):
    return sum(pq.read_metadata(file).num_rows for file in table.glob("*/data.parquet"))


@mutant("verify reads raw files and counts nothing", "observe.verification:_count", TOLD, VERIFICATION)
def _(db, data, kind, raw):
    return unbroken(db, data, kind, set())


@mutant("doctor shows no finding", "observe.questions:seen", TOLD, QUESTIONS)
def _(finding):
    return Seen("findings", Light.GREEN, "No error or warning about the data is open.")


@mutant("a damaged raw file counts as read", "transform.publish:_noting", ONCE, DAMAGE)
def _(batches, hashes):
    return batches


@mutant("a lost version's number is given again", "transform.versions:Versions.next_number", ONCE, TYPED_FILES)
def _(self):
    return max(map(number_of, self._files()), default=0) + 1


@mutant("an older version stays beside a rewritten one", "transform.versions:Versions.remove_older", ERASED, PUBLISH)
def _(self, but):
    return unbroken(self, 1)


@mutant("who is erased stays if raw has lost their leads", "orchestration.publish_folder:_refuse", ERASED, REQUESTS)
def _(suppressed, before, db):
    return None


@mutant(
    "who objects is noted for the leads of that moment",
    "orchestration.publish_folder:_note_who_objects",
    ERASED,
    REQUESTS,
)
def _(db, objecting, *, is_whole):
    if is_whole:
        unbroken(db, objecting, is_whole=is_whole)


@mutant("tables of an earlier release stay", "orchestration.publish_folder:_delete_former", ERASED, PUBLISHING)
def _(data):
    return None


@mutant("no day's marts are made anew", "transform.tables:is_of", FIGURES, MART_FILES)
def _(days):
    return "false"


@mutant("an erased person stays in a mart that fails", "transform.marts:_keep_last_good", ERASED, MART_FILES)
def _(db, mart, folder, *, is_rewritten):
    return None


@mutant("an own mart opens files", "transform.own_table:_make", OWN, OWN_MARTS)
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


@mutant("an own mart's error quotes a lead", "transform.own_table:told", OWN, OWN_MARTS)
def _(error, statement):
    return str(error)


@mutant("an own file takes the place of one of our tables", "transform.own_marts:_problem_of_name", OWN, OWN_MARTS)
def _(name, others):
    return None


@mutant("a changed own mart waits for leads", "transform.own_marts:look_of", FRESH, PUBLISHING)
def _(folder):
    return ""


@mutant("an erased person stays in an own mart that fails", "transform.own_marts:keep_own_tables", ERASED, OWN_MARTS)
def _(db, own, *, is_rewritten):
    unbroken(db, own, is_rewritten=False)


@mutant("old days keep showing a new value as unknown", "transform.marts:_make_words", FIGURES, MART_FILES)
def _(db):
    is_first = not db.execute("from pipeline.words").fetchall()
    return unbroken(db) and is_first


sql_mutant(
    "a person's words show as a member does",
    "sql/macros/marts.sql",
    "regexp_full_match(trim(v), {member})",
    "regexp_matches(trim(v), {prefix})",
    ERASED,
    MART_FILES,
)


sql_mutant(
    "a new member shows only once three people have sent it",
    "sql/macros/marts.sql",
    "regexp_full_match(trim(v), {member})",
    "false",
    FIGURES,
    MART_FILES,
)


@mutant("drift names what one lead has", "transform.drift:drift_statement", ERASED, DRIFT)
def _(first_day):
    return unbroken(first_day).replace("count(distinct sender)", "count(*)")


@mutant("drift has no memory", "transform.drift:drift_statement", FIGURES, DRIFT)
def _(first_day):
    return unbroken(first_day).replace(first_day.isoformat(), "2026-11-20")


@mutant("touched days are left out", "transform.typed:_write_days", ONCE, TYPED_FILES)
def _(db, table, folder, days):
    return None


@mutant("untouched days are left out", "transform.typed:_link_days", ONCE, TYPED_FILES)
def _(before, table, days):
    return None


@mutant("each tree stays", "transform.typed:number_of", ERASED, TYPED_FILES)
def _(path):
    if path.name.startswith("tables-") and not [*path.parent.glob(f"leads-{unbroken(path)}-*.duckdb")]:
        return max(unbroken(version) for version in path.parent.glob("leads-*.duckdb"))
    return unbroken(path)


@mutant("old Delta files stay", "transform.delta:delete_tables", ERASED, DELTA)
def _(store, prefix="tables/"):
    store.delete([key for key in store.list(prefix) if "/_delta_log/" in key])


@mutant("a Delta table keeps rows from before a kill", "transform.delta:_written_for", ONCE, DELTA)
def _(table):
    import pathlib

    folder = pathlib.Path(table.table_uri.removeprefix("file://")).parents[1]
    return max(number_of(version) for version in (folder / ".versions").glob("leads-*.duckdb"))


# --- orchestration ----------------------------------------------------------------------------------------------------


@mutant("a second run is asked for", "orchestration.pulling:is_under_way", POLITE, PULLING)
def _(instance, job, names):
    return False


@mutant("a start changes nothing", "orchestration.pulling:note_start", ASKED, PULLING)
def _(state, daemon, now):
    return None


@mutant("the day under way is never listed", "orchestration.pulling:known_windows", ASKED, PULLING)
def _(store, kind, scopes, zone, first_day, now):
    return [row for row in unbroken(store, kind, scopes, zone, first_day, now) if row.window.is_closed(now)]


@mutant("failed windows aren't red", "orchestration.dagster_compat:show_as_planned", SHOWN, PULLING)
def _(context, key):
    return None


@mutant("each look is shown", "orchestration.raw_leads:_Pull._is_news", SHOWN, PULLING)
def _(self, answer, landed):
    return True


@mutant("what a killed run has landed stays unseen", "orchestration.raw_leads:_Pull._not_shown", SHOWN, PULLING)
def _(self, partitions):
    return set()


@mutant("a window that had landed stays red", "storage.windows:WindowRow.has_its_looks", SHOWN, PULLING)
def _(self, now):
    return self.looked_at is not None and self.failure is None


@mutant("a failed run asks for landed windows", "observe.window_findings:what_comes_next", SHOWN, PULLING)
def _(rows, now):
    return ["The service asks for them again."]


@mutant("yesterday has always landed", "orchestration.checks:not_landed", SHOWN, PULLING)
def _(known, day):
    return []


@mutant("no Dagster home is remembered", "orchestration.pulling:note_home", SHOWN, PULLING)
def _(instance, state, names):
    return None


@mutant("a failure isn't noted", "orchestration.raw_leads:_Pull._failed", POLITE, PULLING)
def _(self, window, error):
    self._data.raw.fail = lambda *_, **__: None
    yield from unbroken(self, window, error)


@mutant("assets stay as they are made", "orchestration.catalog:with_conventions", SHOWN, CATALOG)
def _(assets, settings, names):
    return list(assets)


@mutant("a publication follows the other at once", "storage.publications:Publications.next_at", FRESH, PUBLISHING)
def _(self, *, is_urgent=False):
    return None


@mutant("no night is published", "storage.publications:Publications.is_night_due", FRESH, PUBLISHING)
def _(self, zone, now):
    return False


@mutant(
    "what lands during a publication is forgotten", "orchestration.publish_sensor:noted_publication", FRESH, PUBLISHING
)
def _(data, zone, marts_dir, *, is_nightly, clock):
    yield
    yield from [None for _ in unbroken(data, zone, marts_dir, is_nightly=is_nightly, clock=clock)][1:]


@mutant("each event connects", "orchestration.event_log:_engine", SHOWN, EVENT_LOG)
def _(address):
    return sqlalchemy.create_engine(address, poolclass=sqlalchemy.NullPool)


# --- published tables, report, Delta ----------------------------------------------------------------------------------

sql_mutant(
    "people are counted per lead",
    "sql/mart_leads_daily.sql",
    "count(distinct person) as people",
    "count(person) as people",
    FIGURES,
    MARTS,
)
sql_mutant(
    "who objected is called",
    "sql/mart_hidden_valuations.sql",
    "and person not in (select person from pipeline.objected)",
    "",
    ERASED,
    MART_FILES,
)
sql_mutant(
    "the two kinds are mixed up",
    "sql/mart_people.sql",
    "count(*) filter (kind = 'applicant') as applicant_leads",
    "count(*) filter (kind = 'appraisal') as applicant_leads",
    FIGURES,
    MARTS,
)
sql_mutant(
    "an odd day is compared with itself",
    "sql/checks/volumes_are_as_usual.sql",
    "between newest - 56 and newest - 7",
    "between newest - 56 and newest",
    TOLD,
    CHECKS,
)
sql_mutant(
    "today counts in the report's week",
    "sql/report/branches.sql",
    "from mart_people_daily, days\n    where lead_day between full_day - 13 and full_day",
    "from mart_people_daily, days\n    where lead_day >= full_day - 13",
    FIGURES,
    REPORT,
)
sql_mutant(
    "a Sunday is compared with Mondays",
    "sql/checks/volumes_are_as_usual.sql",
    " and isodow(day) = isodow(newest)",
    "",
    TOLD,
    CHECKS,
)
sql_mutant(
    "bands of prices have no end",
    "sql/mart_listing_demand.sql",
    "least(floor(banded / band_width)::bigint * band_width, last_band)",
    "floor(banded / band_width)::bigint * band_width",
    FIGURES,
    MARTS,
)


# --- backups ----------------------------------------------------------------------------------------------------------


@mutant("a damaged file is copied into a backup", "storage.backup:hash_in", RESTORED, BACKUP)
def _(key):
    return ""


@mutant("a name that vanished isn't looked for again", "storage.backup:_Draft._add_all", RESTORED, BACKUP)
def _(self, keys, list_again):
    for key in keys:
        self._add(key)


@mutant("the suppression list of a backup wins", "storage.restore:_keep_longer_list", ERASED, BACKUP)
def _(data, under_way):
    shutil.copytree(under_way / "privacy", data.gate.entries.folder, dirs_exist_ok=True)


@mutant("a damaged file of a backup is restored", "storage.restore:hash_in", RESTORED, BACKUP)
def _(key):
    return ""


@mutant("the oldest backups stay", "storage.backup:snapshots", RESTORED, BACKUP)
def _(target, now):
    return list(reversed(unbroken(target, now)))


# --- delivery ---------------------------------------------------------------------------------------------------------


@mutant("a redirect counts as delivered", "delivery.sending:_outcome", DELIVERED, DELIVERY)
def _(version, answer, now):
    if answer.status_code < 400:
        answer.status_code = 200
    return unbroken(version, answer, now)


@mutant("a delivered version stays waiting", "delivery.ledger:Ledger.delivered", DELIVERED, DELIVERY)
def _(self, version, host, now):
    return None


@mutant("an emptied contact is delivered", "delivery.due:_contact", DELIVERED, DELIVERY)
def _(lead):
    return 0


@mutant("a text that comes back counts as delivered", "delivery.message:webhook_id", DELIVERED, DELIVERY)
def _(version):
    return unbroken(version._replace(version=version.version.partition("-")[0]))


@mutant("an endpoint that is away is asked all the time", "delivery.sending:_is_paused", POLITE, DELIVERY)
def _(ledger, now):
    return False


@mutant(
    "a lead's message runs as a formula in a CSV",
    "transform.export:_harmless",
    "no text that somebody wrote runs in a spreadsheet",
    EXPORT,
)
def _(text):
    return text


@mutant(
    "a receipt forgets the exports",
    "storage.state:State.exports",
    "the receipt names each place that an erasure doesn't reach",
    REQUESTS,
)
def _(self):
    return []


@mutant(
    "a long text is too long for Excel",
    "transform.export:_cell",
    "Excel opens an exported workbook without repairing it",
    EXPORT,
)
def _(value):
    return value


@mutant("an image on any website gives the UI orders", "cli.pages:refusal", OWN_PAGES, PAGES)
def _(scope, names):
    return None if scope.get("method") == "GET" and scope["path"] == "/graphql\n" else unbroken(scope, names)


@mutant("a rebound name opens the UI", "cli.pages:_Host.is_known", OWN_PAGES, PAGES)
def _(self, names):
    return True


@mutant("any website gives the UI orders", "cli.pages:_Host.is_origin", OWN_PAGES, PAGES)
def _(self, headers):
    return True


@mutant("a page without an origin gives the UI orders", "cli.pages:_Host.is_origin", OWN_PAGES, PAGES)
def _(self, headers):
    return headers == ["null"] or unbroken(self, headers)


@mutant("another website shows the UI in a frame", "cli.pages:_unframed", OWN_PAGES, PAGES)
def _(send):
    return send


@mutant("two hosts count as one", "cli.pages:_Host.parse", OWN_PAGES, PAGES)
def _(cls, headers):
    return unbroken(cls, headers[:1])
