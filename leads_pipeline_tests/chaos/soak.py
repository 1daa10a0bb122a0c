"""`make soak`: an hour of `serve` with a portal that fails, and with real sinks for what it tells people.

Belongs here: what is planted when, and what has to ring for it. Doesn't: the commands and the portal's process
(newcomer.py), how a cause is found or told (test_watch.py, test_channels.py).

Each cause is planted, has to ring once on every channel, is mended, and has to ring once more as over; each process of
`serve` is killed on the way. Nothing else may ring. Two things last longer than the hour: what has to fail for an hour,
and a publication that is a day old. For them `serve` is started again with a clock that is ahead (libfaketime), the
second time with the portal's clock as well.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from email import message_from_bytes
from email.policy import default
from pathlib import Path
from typing import Any, Final
from zoneinfo import ZoneInfo

import click
import httpx
from aiosmtpd.controller import Controller

from leads_pipeline.contract import window_parameters
from leads_pipeline.window import RETENTION, Window, day_interval
from leads_pipeline_tests.newcomer import BIN, Newcomer, free_port, is_alive, wait_for
from leads_pipeline_tests.test_channels import WebSink, web_sink

# The sensor that tells people looks every five minutes, and after a run once more where one was under way.
PATIENCE_SECONDS: Final = 12 * 60
QUIET_SECONDS: Final = 6 * 60

BRANCHES: Final = (101, 102, 103, 104, 105)

# Room for half an hour's history of Dagster and everything else, and no more than a machine can spare.
DISK: Final = "1800m"
LEFT_ON_FULL_DISK: Final = 80_000_000

# With a monotonic clock that isn't set ahead, libfaketime breaks the system call behind Python's sleep, and no other.
_SLEEP: Final = """\
import select, time
time.sleep = lambda seconds: select.select([], [], [], seconds)
"""

_IN_TIME: Final = "check failed: mart coverage: windows are landed in time"
_PUBLICATION: Final = "nothing has been published for more than a day"


class Mails:
    """An SMTP server's side of the matter: keeps subjects."""

    def __init__(self) -> None:
        self.subjects: list[str] = []

    async def handle_DATA(self, _server: Any, _session: Any, envelope: Any) -> str:  # noqa: N802 - aiosmtpd's name
        subject = str(message_from_bytes(envelope.content, policy=default)["Subject"])
        self.subjects.append(subject.strip())  # where a line is folded right behind the name, a blank is left
        return "250 OK"


@dataclass
class Sinks:
    """What arrived, as one headline each: `Over: the disk gets full`."""

    web: WebSink
    slack: WebSink
    heart: WebSink
    mails: Mails

    def headlines(self) -> dict[str, list[str]]:
        return {
            "webhook": [_headline(json.loads(body)) for _, _, body in self.web.requests],
            "slack": [json.loads(body)["text"].splitlines()[0].strip("*") for _, _, body in self.slack.requests],
            "mail": list(self.mails.subjects),
        }

    def beats(self) -> list[str]:
        return [path.partition("beat")[2] for _, path, _ in self.heart.requests]


_WORDS: Final = {"worse": "Worse: ", "still": "Still: ", "over": "Over: "}


def _headline(told: dict[str, Any]) -> str:
    return f"[leads_pipeline] {_WORDS.get(told['occasion'], '')}{told['title']}"


@dataclass
class Soak:
    """A data folder, a portal, `serve`, and what has to ring."""

    folder: Path
    sinks: Sinks
    zone: str
    ports: tuple[int, int, int]
    first_day: date
    ahead: timedelta = timedelta(0)
    serving: "subprocess.Popen[bytes] | None" = None
    portal: "subprocess.Popen[bytes] | None" = None
    credentials: dict[str, str] = field(default_factory=dict)
    expected: list[str] = field(default_factory=list)
    amiss: list[str] = field(default_factory=list)
    told: Counter[str] = field(default_factory=Counter)

    # --- what runs ----------------------------------------------------------------------------------------------

    @property
    def me(self) -> Newcomer:
        return Newcomer(self.folder, self.credentials, exported=self.clock)

    @property
    def clock(self) -> dict[str, str]:
        """The variables for a process whose clock is as far ahead as is wanted."""
        if not self.ahead:
            return {}
        patched = self.folder / "patched"
        patched.mkdir(exist_ok=True)
        (patched / "sitecustomize.py").write_text(_SLEEP)
        return {
            "LD_PRELOAD": _libfaketime(),
            "FAKETIME": f"+{self.ahead.total_seconds():.0f}",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "NO_FAKE_STAT": "1",
            "PYTHONPATH": str(patched),
        }

    @property
    def today(self) -> date:
        """By its clock; by the real one it is `first_day` all the time."""
        return (datetime.now(ZoneInfo(self.zone)) + self.ahead).date()

    def start_portal(self) -> None:
        ready = self.folder / "portal.env"
        ready.unlink(missing_ok=True)
        command = [
            str(BIN / "leads-pipeline"),
            "simulate",
            "--port",
            str(self.ports[0]),
            "--branches",
            str(len(BRANCHES)),
        ]
        command += ["--leads-per-day", "40", "--ready-file", str(ready)]
        elsewhere = self.folder / "portal"
        elsewhere.mkdir(exist_ok=True)
        environment = {"HOME": str(self.folder), "PATH": os.environ["PATH"], **self.clock}
        self.portal = subprocess.Popen(command, cwd=elsewhere, env=environment, stdout=subprocess.DEVNULL)
        wait_for(ready.exists)
        given = dict(line.split("=", 1) for line in ready.read_text().splitlines() if "=" in line)
        self.credentials = {name: value.strip("'\"") for name, value in given.items()} | {"LEADS_TIMEZONE": self.zone}

    def stop_portal(self) -> None:
        if self.portal is not None:
            self.portal.terminate()
            self.portal.wait(30)

    def start(self) -> None:
        options = ("--port", str(self.ports[1]), "--metrics-port", str(self.ports[2]))
        with (self.folder / "serve.log").open("ab") as log:
            self.serving = subprocess.Popen(
                [BIN / "leads-pipeline", "serve", *options],
                cwd=self.folder,
                env=self.me.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def end(self, number: signal.Signals = signal.SIGTERM) -> None:
        """End `serve`, and see that nothing is left of it."""
        if self.serving is None:
            return
        self.serving.send_signal(number)
        self.serving.wait(60)
        for name in ("code location", "webserver", "metrics", "daemon"):
            wait_for(lambda: not is_alive(self.process(name)))  # noqa: B023 - it is called at once
        self.serving = None

    def process(self, name: str) -> int:
        """The number of the program that `serve` started last by that name."""
        log = (self.folder / "serve.log").read_text()
        found = re.findall(rf"INFO {name}(?: at \S+)? started \(process (\d+)\)", log)
        return int(found[-1]) if found else 0

    def kill(self, name: str) -> None:
        """Kill one of its programs, and see that it is started again."""
        killed = self.process(name)
        os.kill(killed, signal.SIGKILL)
        self.note(f"killed {name} ({killed})")
        self.must(lambda: self.process(name) != killed and is_alive(self.process(name)), 60, f"{name} is back")

    # --- what goes wrong ----------------------------------------------------------------------------------------

    def faults(self, *rules: dict[str, Any]) -> None:
        url = f"{self.credentials['LEADS_BASE_URL']}/_simulator/faults"
        httpx.put(url, json={"rules": list(rules)}, timeout=30).raise_for_status()

    def rule(self, branch: int, day: date, then: dict[str, Any], kind: str | None = None) -> dict[str, Any]:
        start, _ = day_interval(day, ZoneInfo(self.zone))
        when = {"scope": f"branch-{branch}", "from": f"{start:%Y-%m-%dT%H:%M}"}
        return {"when": when | ({"path": f"/{kind}-leads"} if kind else {}), "then": then}

    def pull(self, day: date, *branches: int, last: date | None = None) -> None:
        scopes = [word for branch in branches for word in ("--scope", f"branch-{branch}")]
        last = last or day
        done = self.me.run("leads-pipeline", "backfill", "--from", str(day), "--to", str(last), *scopes)
        self.note(f"pulled {day} to {last} of {branches or 'all'}: exit code {done.returncode}")

    def answer(self, branch: int, day: date) -> dict[str, Any]:
        """The portal's own answer for a window of applicant leads."""
        window = Window.from_partition_key(f"{day}|branch-{branch}", ZoneInfo(self.zone))
        with httpx.Client(base_url=self.credentials["LEADS_BASE_URL"], timeout=30) as portal:
            form = {
                "grant_type": "client_credentials",
                "client_id": self.credentials["LEADS_CLIENT_ID"],
                "client_secret": self.credentials["LEADS_CLIENT_SECRET"],
                "audience": self.credentials["LEADS_BASE_URL"],
            }
            token = portal.post("/oauth2/token", data=form).raise_for_status().json()["access_token"]
            question, headers = window_parameters(window), {"Authorization": f"Bearer {token}"}
            answer = portal.get("/applicant-leads", params=question, headers=headers)
            return dict(answer.raise_for_status().json())

    # --- what has to come of it ---------------------------------------------------------------------------------

    def note(self, text: str) -> None:
        click.echo(f"{datetime.now(UTC):%H:%M:%S} {text}")

    def tell(self) -> None:
        """Print what has arrived since the last time."""
        for channel, came in self.sinks.headlines().items():
            for headline in came[self.told[channel] :]:
                self.note(f"    {channel}: {headline}")
                self.told[channel] += 1

    def must(self, what: Callable[[], bool], seconds: float, name: str) -> None:
        try:
            wait_for(what, seconds)
        except AssertionError:
            self.amiss.append(f"{name}: not within {seconds:.0f} s")
            self.note(f"AMISS: {self.amiss[-1]}")
        else:
            self.note(f"seen: {name}")

    def rings(self, *headlines: str) -> None:
        """Wait until each has arrived on each channel as often as it was expected so far; they are patterns."""
        for headline in headlines:
            self.expected.append(headline)
            often = self.expected.count(headline)
            self.must(lambda: self._least(headline) >= often, PATIENCE_SECONDS, headline)  # noqa: B023

    def _least(self, headline: str) -> int:
        self.tell()
        pattern = re.compile(rf"\[leads_pipeline\] {headline}")
        return min(sum(bool(pattern.fullmatch(one)) for one in came) for came in self.sinks.headlines().values())

    def verdict(self) -> list[str]:
        """What rang that should not, or too often, by channel."""
        found = list(self.amiss)
        for channel, came in self.sinks.headlines().items():
            wanted = Counter(self.expected)
            for one in came:
                match = next((p for p in wanted if wanted[p] and re.fullmatch(rf"\[leads_pipeline\] {p}", one)), None)
                if match is None:
                    found.append(f"{channel}: rang, and nothing was planted that it is of: {one}")
                else:
                    wanted[match] -= 1
        return found


def _libfaketime() -> str:
    for folder in (Path("/usr/lib"), Path("/usr/lib64"), Path("/usr/local/lib")):
        for path in sorted(folder.rglob("libfaketimeMT.so.1")):
            return str(path)
    raise click.ClickException("libfaketime is not installed: apt install faketime")


# --- the hour -----------------------------------------------------------------------------------------------------


def refused(windows: str = r"\d+ windows?", reason: str = r"refused \(403\)") -> str:
    return f"{windows} can't be pulled: {reason}"


_HELD_BACK: Final = refused(r"1 window", r"server error \(500\)")
_FIELDS: Final = r"new (field|value) from the portal: .*, and \d+ more"


def held_back(soak: Soak) -> tuple[date, dict[str, Any]]:
    """The day of the window that the portal doesn't give out and begins to delete in less than a week, and its rule."""
    day = soak.first_day - timedelta(days=26)
    return day, soak.rule(103, day, {"status": 500}, "applicant")


def first_landing(soak: Soak) -> None:
    soak.faults(held_back(soak)[1])
    soak.start()
    soak.must(lambda: (soak.folder / "data" / "leads.duckdb").exists(), 900, "the first publication")
    soak.must(lambda: _missing(soak) == 0, 900, "the last 30 days came in")


def first_half(soak: Soak) -> None:
    """What rings at once: each is planted, seen to ring, mended, and seen to ring as over."""
    data, today = soak.folder / "data", soak.first_day
    recent, (_, without) = today - timedelta(days=2), held_back(soak)
    soak.note("— a branch is refused, and a window is held back that will be deleted in less than a week")
    soak.faults(without, soak.rule(104, today, {"status": 403}))
    soak.pull(today, 104)
    soak.rings(_IN_TIME, refused(), _FIELDS)

    soak.note("— the branch is let in; the credentials are refused, and the file of branches' names is broken")
    names = soak.folder / "branches.csv"
    whole = names.read_text()
    names.write_text("neither,nor\n1,2\n")
    soak.faults(without)
    soak.pull(today, 104)
    soak.faults(
        without,
        soak.rule(105, today, {"token": "expired"}),
        {"when": {"path": "/oauth2/token"}, "then": {"status": 401}},
    )
    soak.pull(today, 105)
    for program in ("webserver", "metrics"):
        soak.kill(program)
    soak.rings("Over: " + refused(), refused(reason="credentials"), "check failed: branches: names are read")

    soak.note("— credentials and names are good again; a raw file is damaged, and a field comes that nobody knows")
    names.write_text(whole)
    soak.faults(without)
    soak.pull(today, 105)
    raw = data / "raw" / "applicant_leads" / f"day={recent}" / "scope=branch-105" / "leads.parquet"
    raw.write_bytes(raw.read_bytes()[: raw.stat().st_size // 2])
    body = soak.answer(101, recent)
    leads = next(value for value in body.values() if isinstance(value, list))
    leads[0]["soakField"] = "new"
    drifted = soak.rule(
        101,
        recent,
        {"status": 200, "body": json.dumps(body), "headers": {"content-type": "application/json"}},
        "applicant",
    )
    soak.faults(without, drifted, soak.rule(105, recent, {"status": 500}, "applicant"))
    soak.pull(recent, 101)
    soak.kill("daemon")
    soak.rings(
        "Over: " + refused(reason="credentials"),
        "Over: check failed: branches: names are read",
        "check failed: landed windows: files are whole",
        # Its name could hold anything, and isn't told.
        "new field from the portal: applicant …",
    )

    soak.note("— the damaged window is pulled again; the disk gets full")
    soak.faults(without)
    soak.pull(recent, 105)
    if os.path.ismount(data):
        room = os.statvfs(data)
        with (data / "ballast").open("wb") as ballast:
            os.posix_fallocate(ballast.fileno(), 0, room.f_bavail * room.f_frsize - LEFT_ON_FULL_DISK)
        soak.rings("the disk gets full")
    soak.kill("code location")
    soak.rings("Over: check failed: landed windows: files are whole")

    soak.note("— there is room again")
    (data / "ballast").unlink(missing_ok=True)
    if os.path.ismount(data):
        soak.rings("Over: the disk gets full")


def second_half(soak: Soak) -> None:
    """What takes long to ring, by a clock that is ahead."""
    today, (old, without) = soak.first_day, held_back(soak)
    soak.note("— the portal is down")
    soak.faults({"then": {"status": 503}})
    soak.pull(today, 101, 102)
    before = _ticks(soak)
    soak.must(lambda: _ticks(soak) > before, PATIENCE_SECONDS, "a look at what failed, which nobody is told of yet")

    soak.note("— serve is killed, and started again 65 minutes later by its clock")
    soak.end(signal.SIGKILL)
    soak.ahead = timedelta(minutes=65)
    soak.start()
    # As the windows were refused, or the token for them.
    down = refused(reason=r"(server error \(503\)|token server error)")
    soak.rings(down)

    soak.note("— the portal is up again")
    soak.faults(without)
    soak.pull(today, 101, 102)
    soak.pull(old, 103)
    soak.rings("Over: " + down, _HELD_BACK)

    soak.note("— the machine is off for 30 hours, by its clock")
    soak.end()
    soak.stop_portal()
    soak.ahead = timedelta(hours=30)
    soak.start_portal()
    soak.faults(without)
    soak.start()
    soak.rings(
        _PUBLICATION,
        "Still: " + _HELD_BACK,
        "Worse: " + _IN_TIME,
        "Over: " + _PUBLICATION,
    )
    soak.must(lambda: soak.sinks.beats()[-1:] == [""], PATIENCE_SECONDS, "the heartbeat of the nightly pull")

    soak.note("— what was held back comes in")
    soak.faults()
    soak.pull(old, 103)
    soak.rings("Over: " + _IN_TIME, "Over: " + _HELD_BACK)

    soak.note("— and nothing more")
    time.sleep(QUIET_SECONDS)
    figures = httpx.get(f"http://127.0.0.1:{soak.ports[2]}/metrics", timeout=60).text
    soak.must(lambda: "leads_pipeline_well 1.0" in figures, 1, "the metrics say that all is well")
    for kind in ("applicant", "appraisal"):
        first, last = soak.today - timedelta(days=RETENTION.days - 2), soak.today - timedelta(days=1)
        lost = soak.me.asked(kind, first, last) - soak.me.published(kind)
        soak.must(lambda: not lost, 1, f"every {kind} lead that the portal has is published")  # noqa: B023


def _missing(soak: Soak) -> int:
    told = json.loads(soak.me.run("leads-pipeline", "status", "--json").stdout or "{}")
    return int(told.get("missing", -1)) + int(told.get("under_way", 0))


def _ticks(soak: Soak) -> int:
    """How often the sensor that tells people has looked."""
    query = """query { sensorOrError(sensorSelector: {repositoryName: "__repository__", sensorName: "tell_people",
        repositoryLocationName: "leads_pipeline.definitions"}) {
        ... on Sensor { sensorState { ticks(limit: 1) { tickId status } } } } }"""
    with suppress(httpx.TransportError, KeyError, IndexError, ValueError):
        answer = httpx.post(f"http://127.0.0.1:{soak.ports[1]}/graphql", json={"query": query}, timeout=60).json()
        [tick] = answer["data"]["sensorOrError"]["sensorState"]["ticks"]
        return int(tick["tickId"]) - int(tick["status"] == "STARTED")
    return 0


def morning_zone() -> str:
    """A zone in which it is nine in the morning, so that no midnight comes before the clock is put ahead."""
    ahead = (9 - datetime.now(UTC).hour + 12) % 24 - 12
    return f"Etc/GMT{-ahead:+d}" if ahead else "UTC"


@contextmanager
def disk(folder: Path) -> Iterator[None]:
    """A small disk for the data folder where one may be mounted."""
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={DISK},mode=0700", "leads-soak", str(folder)]
    is_mounted = os.geteuid() == 0 and subprocess.run(command, check=False).returncode == 0
    if not is_mounted:
        click.echo("No file system can be mounted here: the full disk is left out.")
    try:
        yield
    finally:
        if is_mounted:
            kept = folder.with_name("data-afterwards")
            shutil.copytree(folder, kept, ignore=shutil.ignore_patterns("ballast"))
            subprocess.run(["umount", str(folder)], check=True)


@contextmanager
def soaking(folder: Path) -> Iterator[Soak]:
    with ExitStack() as stack:
        stack.enter_context(disk(folder / "data"))
        mails, port = Mails(), free_port()
        web, slack, heart = (stack.enter_context(web_sink()) for _ in range(3))
        server = Controller(mails, "127.0.0.1", port=port, ready_timeout=30)
        server.start()
        stack.callback(server.stop)
        zone, ports = morning_zone(), (free_port(), free_port(), free_port())
        soak = Soak(folder, Sinks(web, slack, heart, mails), zone, ports, datetime.now(ZoneInfo(zone)).date())
        stack.callback(soak.stop_portal)
        stack.callback(soak.end)
        soak.start_portal()
        (folder / "branches.csv").write_text("id,name\n" + "".join(f"{one},Office {one}\n" for one in BRANCHES))
        soak.me.fill_in(
            LEADS_BRANCHES_FILE=str(folder / "branches.csv"),
            LEADS_ALERT_WEBHOOK=f"{web.url}/hook",
            LEADS_ALERT_SLACK_WEBHOOK=f"{slack.url}/slack",
            LEADS_ALERT_EMAIL="ops@agency.example",
            LEADS_SMTP_URL=f"smtp://127.0.0.1:{port}",
            LEADS_HEARTBEAT_URL=f"{heart.url}/beat",
        )
        yield soak


@click.command()
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
@click.option("--half", type=click.Choice(["first", "second"]), help="That half alone, instead of both in turn.")
def main(folder: Path, half: str | None) -> None:
    """Soak `serve` for an hour in FOLDER, which must not exist yet. Exit code 1: something is amiss."""
    folder.mkdir(parents=True)
    _libfaketime()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # as ctrl-C: in order
    began = time.monotonic()
    with soaking(folder.resolve()) as soak:
        try:
            first_landing(soak)
            if half != "second":
                first_half(soak)
            else:
                soak.rings(_IN_TIME, _FIELDS)
            if half != "first":
                second_half(soak)
        except AssertionError as error:
            soak.amiss.append(f"it ended early: {error}")
        found = soak.verdict()
        for channel, came in soak.sinks.headlines().items():
            click.echo(f"{channel}: {len(came)} messages")
        click.echo(f"heartbeat: {soak.sinks.beats()}")
        for headline in soak.sinks.headlines()["webhook"]:
            click.echo(f"  {headline}")
    for line in found:
        click.echo(f"AMISS: {line}")
    click.echo(f"{len(found)} amiss after {(time.monotonic() - began) / 60:.0f} minutes.")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
