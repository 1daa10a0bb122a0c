"""A day of delivery: pulls and pushes, an endpoint that is down, ten killed senders, an erasure in between."""

import os
import random
import subprocess
import sys
import threading
import time
from pathlib import Path

from leads_pipeline_tests.delivery.test_delivery import lead
from leads_pipeline_tests.support import crm
from leads_pipeline_tests.support.house import DAY, Quick

_KILLS = 10


def test_every_lead_arrives_and_none_of_the_erased(tmp_path: Path) -> None:
    house, is_down = Quick(tmp_path / "data"), threading.Event()
    numbers = iter(range(10_000))
    rng = random.Random(20261127)  # noqa: S311 - a test's
    expected, erased = set[str](), set[str]()

    def arrive(count: int) -> None:
        new = [lead(next(numbers)) for _ in range(count)]
        expected.update(one["id"] for one in new)
        scope, half = rng.choice(house.scopes), count // 2
        house.land("applicant", new[:half], scope=scope)
        house.push("applicant", *new[half:])

    with crm.running(0.02, is_down) as (address, applied):
        environment = os.environ | {
            "LEADS_DATA_DIR": str(house.folder),
            "LEADS_DELIVERY_URL": address,
            "LEADS_DELIVERY_SECRET": crm.SECRET,
            "LEADS_DELIVERY_FROM": str(DAY),
        }
        command = [str(Path(sys.executable).with_name("leads-pipeline")), "deliver", "--now"]
        for kill in range(_KILLS):
            arrive(60)
            if kill == 3:
                is_down.set()
            if kill == 5:
                is_down.clear()
            if kill == 7:
                victim = sorted(expected - {one["data"]["lead_id"] for one in applied.values()})[0]
                erased.add(victim)
                house.erase(email=f"j{victim.removeprefix('lead-')}@example.org")
            with subprocess.Popen(command, env=environment, cwd=tmp_path) as sender:
                time.sleep(rng.uniform(1, 3))
                sender.kill()
        assert applied
        ended = subprocess.run(command, env=environment, cwd=tmp_path, check=False, capture_output=True, text=True)
        assert ended.returncode == 0, ended.stderr
        leads = [one["data"]["lead_id"] for one in applied.values()]
        assert len(leads) == len(set(leads))
        assert set(leads) == expected - erased
