"""Four writers of one window, killed again and again, beside erasures: no acknowledged version is
lost or doubled.

`KILLS=70 .venv/bin/pytest leads_pipeline_tests/chaos/test_raw.py` kills more often.
"""

import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path

import pytest

from leads_pipeline.domain.contract import APPLICANT
from leads_pipeline.features.bucket.store import open_store
from leads_pipeline.raw.landing import MOST_FILES, Raw
from leads_pipeline.raw.names import place_of
from leads_pipeline.raw.rows import newest_payloads
from leads_pipeline_tests.support.buckets import new_bucket
from leads_pipeline_tests.support.keeping_out import KeptOut
from leads_pipeline_tests.support.newcomer import ROOT
from leads_pipeline_tests.support.sample_answers import WINDOW

WRITERS = 4
KILLS = int(os.environ.get("KILLS", "12"))
ERASED = [f"lead-{number}" for number in range(KILLS // 10 + 1)]
PLACE = place_of(APPLICANT, WINDOW)

# Lands and pushes without end, and tells of each version once it is landed.
LANDS = """
import json, random, sys, time
from datetime import UTC, datetime
from pathlib import Path
from leads_pipeline.domain.contract import APPLICANT, ReceivedLead
from leads_pipeline.raw.landing import Raw
from leads_pipeline.raw.names import place_of
from leads_pipeline.features.bucket.store import open_store
from leads_pipeline_tests.support.keeping_out import KeptOut
from leads_pipeline_tests.support.sample_answers import WINDOW

address, kept_out, seed = sys.argv[1:]
random.seed(seed)
raw = Raw(open_store(address, plain_http=True), KeptOut(Path(kept_out)))
while True:
    now = datetime.now(UTC)
    way = random.choice(["look", "look twice", "fresh", "push", "push"])
    ids = random.sample([f"lead-{number}" for number in range(30)], 3)
    leads = [ReceivedLead(id_, json.dumps({"way": way, "at": time.time_ns(), "by": seed})) for id_ in ids]
    if way == "push":
        raw.add(place_of(APPLICANT, WINDOW), leads, now)
    else:
        raw.land(APPLICANT, WINDOW, leads, now, f"{seed} {now}", seed, is_fresh=way == "fresh")
    if way == "look twice":
        raw.land(APPLICANT, WINDOW, leads, datetime.now(UTC), f"{seed} {now}", seed)
    print(json.dumps([[lead.lead_id, lead.payload] for lead in leads]), flush=True)
"""


@pytest.fixture(params=["folder", "bucket"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "folder":
        yield (tmp_path / "data").as_uri()
    else:
        yield new_bucket(request.getfixturevalue("moto"))
    open_store.cache_clear()


def acknowledged(output: str) -> list[tuple[str, str]]:
    """The versions in whole lines: the last one may be cut off."""
    lines = output.rpartition("\n")[0].splitlines()
    return [(lead_id, payload) for line in lines for lead_id, payload in json.loads(line)]


def test_writers_that_are_killed_beside_erasures_lose_and_double_nothing(
    address: str, tmp_path: Path
) -> None:
    kept_out = KeptOut(tmp_path / "list")
    raw = Raw(open_store(address, plain_http=True), kept_out)
    dice = random.Random(os.environ["CHAOS_SEED"])  # noqa: S311 - to be repeated
    outputs: list[Path] = []
    erased = iter(ERASED)

    with ExitStack() as stack:

        def begin() -> subprocess.Popen[str]:
            outputs.append(tmp_path / f"output-{len(outputs)}")
            outputs[-1].touch()
            script = f"import sys; sys.stdout = open({str(outputs[-1])!r}, 'w')\n{LANDS}"
            arguments = [address, str(tmp_path / "list"), str(len(outputs))]
            command = [sys.executable, "-c", script, *arguments]
            writer = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True)
            stack.callback(writer.communicate)
            stack.callback(writer.kill)
            return writer

        writers = [(begin(), outputs[-1]) for _ in range(WRITERS)]
        for kill in range(KILLS):
            number = dice.randrange(WRITERS)
            writer, output = writers[number]
            while not output.stat().st_size:
                assert writer.poll() is None, writer.communicate()[1]
                time.sleep(0.01)
            time.sleep(dice.uniform(0, 0.2))
            writer.kill()
            writer.wait()
            writers[number] = begin(), outputs[-1]
            if kill % 10 == 5:
                kept_out.keep_out(next(erased))
                raw.rewrite(PLACE)

    # Of a list that a file was filtered by, nobody is in it. Who reads it passes it through a newer
    # one.
    contents = raw.read(PLACE)
    assert contents.opened
    out = ERASED[: kept_out.newest_entry]
    for opened in contents.opened.values():
        assert {row.lead_id for row in opened.rows}.isdisjoint(out[: opened.footer.newest_entry])

    assert len(contents.opened) <= MOST_FILES + 2 * WRITERS

    told = [version for output in outputs for version in acknowledged(output.read_text())]
    assert len(told) > KILLS
    raw.land(APPLICANT, WINDOW, [], datetime.now(UTC), "", "")
    (opened,) = raw.read(PLACE).opened.values()
    rows = opened.rows
    found = Counter((row.lead_id, row.payload) for row in rows)
    assert {version for version in told if version[0] not in out} <= found.keys()
    assert {lead_id for lead_id, _ in found}.isdisjoint(out)
    # A lead that was looked at twice may have had another version in between.
    for (_, payload), count in found.items():
        assert count <= 1 + ("look twice" in payload), payload
    latest = {row.lead_id: row.payload for row in sorted(rows, key=lambda row: row.number)}
    assert newest_payloads(rows) == latest
