"""Who lands an answer: threads or a process of its own, with the same files, and nothing lost whatever ends it."""

import logging
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from leads_pipeline import landing
from leads_pipeline.contract import APPLICANT, Answer
from leads_pipeline.errors import LeadsPipelineError, PermanentError, RefusedError, StorageError
from leads_pipeline.lake import Lake
from leads_pipeline.landing import Outcome, land_all
from leads_pipeline.window import Scope, Window
from leads_pipeline_tests.support.sample_answers import DAY, TWENTY, UTC_ZONE, answer, lead

WAYS = ["threads", "process"]


@pytest.fixture(params=WAYS)
def lake(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lake:
    if request.param == "process":
        monkeypatch.setattr(landing, "PROCESS_FROM_WINDOWS", 0)
    return Lake(tmp_path / "data")


@pytest.fixture
def by_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lake:
    monkeypatch.setattr(landing, "PROCESS_FROM_WINDOWS", 0)
    return Lake(tmp_path / "data")


def answers(count: int) -> list[tuple[Window, Outcome]]:
    """An answer of 20 leads for each of so many branches."""
    made: list[tuple[Window, Outcome]] = []
    for number in range(count):
        window = Window.of(DAY, Scope.parse(f"branch-{number}"), UTC_ZONE)
        made.append((window, replace(answer([lead(n, f"{number}") for n in range(20)]), window=window)))
    return made


def landed_by(lake: Lake, outcomes: list[tuple[Window, Outcome]]) -> dict[Window, landing.Result]:
    results = list(land_all(iter(outcomes), len(outcomes), lake, "run"))
    assert len(results) == len(outcomes)
    return dict(results)


def children() -> list[int]:
    """The processes that this one has begun to land answers, and that live."""
    found = list[int]()
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # one that has just ended
            parent = int((process / "stat").read_text().rpartition(") ")[2].split()[1])
            if parent == os.getpid() and b"leads_pipeline.landing" in (process / "cmdline").read_bytes():
                found.append(int(process.name))
    return found


def test_every_answer_is_landed_and_comes_out_once_with_what_landing_did(lake: Lake) -> None:
    outcomes = answers(40)
    for window, result in landed_by(lake, outcomes).items():
        assert not isinstance(result, LeadsPipelineError)
        received, what = result
        assert (received.window, what.new, what.leads) == (window, 20, 20)
    assert [(one.scope, one.leads, one.run_id) for one in lake.landed_windows(APPLICANT, DAY)] == sorted(
        (window.scope.key, 20, "run") for window, _ in outcomes
    )
    assert children() == []


def test_both_ways_make_the_same_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    for way, least in zip(WAYS, (10**6, 0), strict=True):
        monkeypatch.setattr(landing, "PROCESS_FROM_WINDOWS", least)
        lake = Lake(tmp_path / way)
        landed_by(lake, answers(12))
        landed_by(
            lake,
            [(window, replace(one, leads=tuple(TWENTY[:7]))) for window, one in answers(12) if isinstance(one, Answer)],
        )
        made.append({path.relative_to(lake.folder): path.read_bytes() for path in lake.raw_files(APPLICANT, DAY)})
    assert made[0] == made[1]
    assert len(made[0]) == 12


def test_a_window_that_was_not_answered_comes_out_as_why_beside_those_that_were(lake: Lake) -> None:
    refused = PermanentError("No.", reason="refused")
    outcomes = answers(6)
    outcomes[2] = outcomes[2][0], refused
    results = landed_by(lake, outcomes)
    assert results[outcomes[2][0]] is refused
    assert sum(isinstance(one, tuple) for one in results.values()) == 5


def test_what_came_of_a_window_is_landed_and_comes_out_as_what_is_missing(
    lake: Lake, caplog: pytest.LogCaptureFixture
) -> None:
    missing = RefusedError("The rest didn't come.", status=403)
    [(window, whole)] = answers(1)
    assert isinstance(whole, Answer)
    assert landed_by(lake, [(window, replace(whole, failure=missing))]) == {window: missing}
    assert caplog.text == ""
    [landed] = lake.landed_windows(APPLICANT, DAY)
    assert (landed.leads, landed.is_closed) == (20, False)


def test_a_file_that_cannot_be_written_costs_its_window_alone(lake: Lake) -> None:
    outcomes = answers(5)
    in_the_way = lake.folder / "raw" / "applicant_leads" / f"day={DAY}" / "scope=branch-3"
    in_the_way.parent.mkdir(parents=True)
    in_the_way.write_text("a file where a folder is to be")
    results = landed_by(lake, outcomes)
    error = results.pop(outcomes[3][0])
    assert isinstance(error, StorageError)
    assert "branch-3" in str(error)
    assert "can't be " in str(error)
    assert error.reason == StorageError.default_reason
    assert all(isinstance(one, tuple) for one in results.values())


def test_what_landing_tells_is_told_here(lake: Lake, caplog: pytest.LogCaptureFixture) -> None:
    outcomes = answers(3)
    landed_by(lake, outcomes)
    damaged = lake.raw_files(APPLICANT, DAY)[1]
    damaged.write_bytes(b"no Parquet")
    landed_by(lake, outcomes)
    [told] = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert told.name == "leads_pipeline.lake.quarantine"
    assert str(damaged) in told.getMessage()
    assert len(lake.quarantined()) == 1


def test_a_log_that_cannot_be_written_keeps_no_answer_from_being_landed(
    by_process: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcomes = answers(5)
    landed_by(by_process, outcomes)
    by_process.raw_files(APPLICANT, DAY)[1].write_bytes(b"no Parquet")

    def failing(record: logging.LogRecord) -> None:
        raise OSError(record.name)

    monkeypatch.setattr(logging.getLogger("leads_pipeline.lake.quarantine"), "handle", failing)
    assert all(isinstance(one, tuple) for one in landed_by(by_process, outcomes).values())


def test_a_fault_of_ours_is_raised_here(lake: Lake) -> None:
    [(window, whole)] = answers(1)
    assert isinstance(whole, Answer)
    with pytest.raises(AttributeError):
        landed_by(lake, [(window, replace(whole, leads=(TWENTY[0]._replace(payload=None),)))])  # type: ignore[arg-type]
    assert children() == []


@pytest.mark.parametrize("killed_after", [0, 1, 30])
def test_when_the_process_is_killed_all_is_landed_all_the_same_and_told(
    by_process: Lake, killed_after: int, caplog: pytest.LogCaptureFixture
) -> None:
    outcomes = answers(60)

    def with_a_kill() -> Iterator[tuple[Window, Outcome]]:
        for number, one in enumerate(outcomes):
            if number == killed_after:
                [child] = children()
                os.kill(child, signal.SIGKILL)
            yield one

    results = dict(land_all(with_a_kill(), len(outcomes), by_process, "run"))
    assert all(isinstance(one, tuple) for one in results.values())
    assert results.keys() == {window for window, _ in outcomes}
    assert [one.leads for one in by_process.landed_windows(APPLICANT, DAY)] == [20] * 60
    assert "was ended (by signal 9, as by the kernel where memory is short)" in caplog.text
    assert children() == []


def test_what_ends_a_group_or_a_service_does_not_end_the_process_before_its_parent(
    by_process: Lake, caplog: pytest.LogCaptureFixture
) -> None:
    outcomes = answers(30)

    def with_signals() -> Iterator[tuple[Window, Outcome]]:
        for number, one in enumerate(outcomes):
            if number == 20:  # its first results have come, so it listens
                [child] = children()
                assert os.getpgid(child) != os.getpgid(0)
                os.kill(child, signal.SIGTERM)
            yield one

    results = dict(land_all(with_signals(), len(outcomes), by_process, "run"))
    assert all(isinstance(one, tuple) for one in results.values())
    assert caplog.text == ""


def test_where_no_process_can_be_begun_all_is_landed_all_the_same_and_told(
    by_process: Lake, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    assert all(isinstance(one, tuple) for one in landed_by(by_process, answers(12)).values())
    assert "No process can be begun to land answers ([Errno 2] No such file or directory" in caplog.text
    monkeypatch.setattr(sys, "executable", "/bin/false")
    assert all(isinstance(one, tuple) for one in landed_by(by_process, answers(12)).values())
    assert "was ended (exit code 1)" in caplog.text


def in_the_process(monkeypatch: pytest.MonkeyPatch, folder: Path, instead_of_landing: str) -> None:
    """Have the process do that before it lands: `lake` and `answer` are there, and `land` lands."""
    body = textwrap.indent(textwrap.dedent(instead_of_landing), " " * 12)
    (folder / "sitecustomize").with_suffix(".py").write_text(
        "import sys\n"
        "if sys.argv[0] == '-m':\n"
        "    from leads_pipeline.lake import Lake\n"
        "    def patched(land):\n"
        "        def instead(lake, answer, run_id):\n"
        f"{body}\n"
        "            return land(lake, answer, run_id)\n"
        "        return instead\n"
        "    Lake.land = patched(Lake.land)\n"
    )
    monkeypatch.syspath_prepend(folder)


@pytest.mark.parametrize("error", ["ConnectionResetError", "EOFError", "MemoryError", "ValueError"])
def test_what_the_process_fails_at_for_no_reason_of_the_windows_is_landed_here(
    by_process: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: str
) -> None:
    in_the_process(monkeypatch, tmp_path, f"if answer.window.scope.id in '37': raise {error}")
    assert all(isinstance(one, tuple) for one in landed_by(by_process, answers(12)).values())
    assert [one.leads for one in by_process.landed_windows(APPLICANT, DAY)] == [20] * 12
    assert caplog.text == ""


def test_a_process_that_tells_much_and_an_answer_that_is_large_do_not_wait_for_each_other(
    by_process: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    told = "for n in range(400): logging.getLogger('leads_pipeline.lake').warning('%s' * 100, *['told'] * 100)"
    in_the_process(monkeypatch, tmp_path, f"import logging\n{told}")
    large = [(one[0], replace(one[1], leads=(lead(1, "x" * 2_000_000),))) for one in answers(20)]  # type: ignore[type-var]
    assert all(isinstance(one, tuple) for one in landed_by(by_process, large).values())
    assert len(caplog.records) == 20 * 400


def test_what_was_sent_is_landed_when_nobody_takes_results_any_more(
    by_process: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_the_process(monkeypatch, tmp_path, "import time\ntime.sleep(0.3)")
    sent = 0

    def counted() -> Iterator[tuple[Window, Outcome]]:
        nonlocal sent
        for one in answers(40):
            sent += 1
            yield one

    results = land_all(counted(), 40, by_process, "run")
    next(results)
    results.close()  # type: ignore[attr-defined]
    assert len(by_process.landed_windows(APPLICANT, DAY)) == sent > 5


def test_what_is_landed_comes_out_while_other_windows_fail(lake: Lake) -> None:
    """Whoever is killed meanwhile has told of it."""
    [(window, answered)] = answers(1)
    failed = Window.of(DAY, Scope.parse("branch-none"), UTC_ZONE)

    def outcomes() -> Iterator[tuple[Window, Outcome]]:
        yield window, answered
        while not lake.landed_windows(APPLICANT, DAY):
            time.sleep(0.01)
        for _ in range(200):
            time.sleep(0.01)
            yield failed, PermanentError("No.")

    results = [one for one, _ in land_all(outcomes(), 201, lake, "run")]
    assert results.count(window) == 1
    assert results.index(window) < 100


def test_who_stops_taking_results_leaves_no_process(by_process: Lake) -> None:
    results = land_all(iter(answers(40)), 40, by_process, "run")
    next(results)
    assert len(children()) == 1
    results.close()  # type: ignore[attr-defined]
    assert children() == []


def test_the_process_knows_no_secret_and_takes_no_module_from_the_current_folder(
    by_process: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LEADS_CLIENT_SECRET", "quite-a-secret")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "msgspec").with_suffix(".py").write_text("raise SystemExit('not this one')")
    results = land_all(iter(answers(40)), 40, by_process, "run")
    next(results)
    [child] = children()
    assert b"quite-a-secret" not in Path(f"/proc/{child}/environ").read_bytes()
    assert all(isinstance(one, tuple) for _, one in results)


def test_the_process_ends_when_its_parent_is_killed(tmp_path: Path) -> None:
    script = f"""
        import os, time
        from pathlib import Path
        from leads_pipeline import landing
        from leads_pipeline.lake import Lake
        from leads_pipeline_tests.storage.test_landing import answers, children

        landing.PROCESS_FROM_WINDOWS = 0
        results = landing.land_all(iter(answers(40)), 40, Lake(Path({str(tmp_path / "data")!r})), "run")
        next(results)
        print(children()[0], flush=True)
        time.sleep(60)
    """
    with subprocess.Popen([sys.executable, "-c", textwrap.dedent(script)], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = Path("/proc") / parent.stdout.readline().strip()
        assert child.exists()
        parent.kill()
    deadline = time.monotonic() + 30
    while child.exists() and "\nState:\tZ" not in child.joinpath("status").read_text():
        assert time.monotonic() < deadline
        time.sleep(0.05)
