"""A folder that is a copy of an object store: several machines, each with its own, and what a crash leaves behind."""

import json
import shutil
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from leads_pipeline.contract import APPLICANT, InventoryItem, PushedLead, ReceivedLead
from leads_pipeline.errors import SettingsError, StorageError
from leads_pipeline.lake import Lake
from leads_pipeline.lake.rows import sequence_of
from leads_pipeline.objects import ObjectStore
from leads_pipeline.objects.folder import FolderStore
from leads_pipeline.spool import Placement, Spool
from leads_pipeline.suppression import Action, Entry, Suppressed
from leads_pipeline.window import Scope, Window
from leads_pipeline_tests.storage.test_lake import payloads, versions
from leads_pipeline_tests.support.sample_answers import CLOSED_AT, DAY, LATER, TWENTY, UTC_ZONE, WINDOW, answer, lead


class Interrupted(BaseException):
    """A process that ends where it is."""


class Breaking:
    """A store whose user is ended after so many verbs that change something: before the verb has happened, or after."""

    def __init__(self, store: ObjectStore) -> None:
        self.store = store
        self.left: int | None = None

    @property
    def address(self) -> str:
        return self.store.address

    @property
    def options(self) -> dict[str, str]:
        return self.store.options

    def create(self, key: str, content: bytes) -> bool:
        self._count()
        is_new = self.store.create(key, content)
        self._count()
        return is_new

    def create_once(self, key: str, content: bytes) -> bool:
        return self.create(key, content) or self.get(key) == content

    def get(self, key: str) -> bytes | None:
        return self.store.get(key)

    def list(self, prefix: str) -> list[str]:
        return self.store.list(prefix)

    def delete(self, keys: Sequence[str]) -> None:
        self._count()
        self.store.delete(keys)

    def created_at(self, key: str) -> datetime | None:
        return self.store.created_at(key)

    def _count(self) -> None:
        if self.left is not None:
            self.left -= 1
            if self.left < 0:
                self.left = None
                raise Interrupted


@pytest.fixture
def store(tmp_path: Path) -> FolderStore:
    return FolderStore(tmp_path / "store")


@pytest.fixture
def machine(tmp_path: Path, store: FolderStore) -> Callable[[str], Lake]:
    return lambda name: Lake(tmp_path / name, store=store)


def raw_keys(store: ObjectStore) -> list[str]:
    return store.list("raw/")


def the_file(lake: Lake) -> Path:
    [path] = lake.raw_files(APPLICANT, DAY)
    return path


def entry(action: Action, *leads: str) -> Callable[[Suppressed, int], Entry]:
    return lambda suppressed, number: Entry(
        number=number,
        at=datetime.now(UTC),
        action=action,
        leads=tuple(suppressed.hashed_lead("applicant", one) for one in leads),
    )


# --- landing ----------------------------------------------------------------------------------------------------------


def test_what_is_landed_is_in_the_store_before_landing_says_so(
    machine: Callable[[str], Lake], store: FolderStore
) -> None:
    landing = machine("one").land(answer(TWENTY), "run-1")

    [key] = raw_keys(store)
    assert key.startswith("raw/applicant_leads/day=2026-11-19/scope=branch-101/leads-")
    assert store.get(key) == landing.path.read_bytes()


def test_a_window_that_is_landed_again_is_one_object_still(machine: Callable[[str], Lake], store: FolderStore) -> None:
    lake = machine("one")
    for number in range(5):
        lake.land(answer([lead(number)], fetched_at=CLOSED_AT + timedelta(hours=number), sequence=number + 1), "run")

    [key] = raw_keys(store)
    assert store.get(key) == the_file(lake).read_bytes()
    assert len(payloads(the_file(lake))) == 5


def test_without_a_store_a_file_is_what_it_always_was(tmp_path: Path, machine: Callable[[str], Lake]) -> None:
    plain = Lake(tmp_path / "plain").land(answer(TWENTY), "run-1").path.read_bytes()
    assert machine("one").land(answer(TWENTY), "run-1").path.read_bytes() == plain


def test_a_store_that_fails_keeps_the_window_from_being_landed(tmp_path: Path, store: FolderStore) -> None:
    class Away(Breaking):
        def create(self, key: str, content: bytes) -> bool:
            raise StorageError(f"the store is away: {key}, {len(content)}")

    lake = Lake(tmp_path / "one", store=Away(store))
    with pytest.raises(StorageError, match="the store is away"):
        lake.land(answer(TWENTY), "run-1")
    assert lake.landed_windows(APPLICANT, DAY) == []


@pytest.mark.parametrize("ends", range(4))
def test_a_machine_that_is_lost_while_it_lands_again_loses_nothing_it_had_landed(
    tmp_path: Path, store: FolderStore, ends: int
) -> None:
    breaking = Breaking(store)
    one = Lake(tmp_path / "one", store=breaking)
    one.land(answer(TWENTY, sequence=1), "run-1")
    breaking.left = ends
    with suppress(Interrupted):
        one.land(answer([lead(0, "changed")], fetched_at=LATER, sequence=2), "run-2")
    two = Lake(tmp_path / "two", store=store)
    two.refresh()

    assert set(payloads(the_file(two))) == {f"lead-{number:02}" for number in range(20)}
    assert len(raw_keys(store)) == 1


# --- several machines -------------------------------------------------------------------------------------------------


def test_a_new_machine_has_what_the_others_landed(machine: Callable[[str], Lake]) -> None:
    one, two = machine("one"), machine("two")
    one.land(answer(TWENTY), "run-1")
    two.refresh()

    assert the_file(two).read_bytes() == the_file(one).read_bytes()
    assert two.landed_windows(APPLICANT, DAY) == [
        replace(window, path=the_file(two)) for window in one.landed_windows(APPLICANT, DAY)
    ]


def test_two_machines_that_landed_one_window_have_both_answers_and_one_object(
    machine: Callable[[str], Lake], store: FolderStore
) -> None:
    one, two = machine("one"), machine("two")
    one.land(answer([lead(1), lead(2)], sequence=5), "run-1")
    two.land(answer([lead(2, "changed"), lead(3)], fetched_at=LATER, sequence=6), "run-2")
    assert len(raw_keys(store)) == 2
    one.refresh()
    two.refresh([DAY])

    assert len(raw_keys(store)) == 1
    assert the_file(one).read_bytes() == the_file(two).read_bytes()
    assert payloads(the_file(one)) == {
        "lead-01": lead(1).payload,
        "lead-02": lead(2, "changed").payload,
        "lead-03": lead(3).payload,
    }
    assert ("lead-02", lead(2).payload) in versions(the_file(one))
    [window] = one.landed_windows(APPLICANT, DAY)
    assert (window.leads, window.rows, window.sequence, window.looked_at) == (3, 4, 6, LATER)
    assert (window.is_closed, window.is_partial, window.run_id) == (True, False, "run-2")


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
@pytest.mark.parametrize("early", [1, 9], ids=["", "a clock that is ahead"])
def test_merging_says_what_landing_one_after_the_other_would_have(
    tmp_path: Path, machine: Callable[[str], Lake], order: Sequence[int], early: int
) -> None:
    open_at, partial_at = WINDOW.end - timedelta(hours=2), WINDOW.end + timedelta(days=30, hours=3)
    answers = [
        answer([lead(1), lead(2)], fetched_at=open_at, sequence=early),
        answer([lead(2), lead(3, "x")], fetched_at=CLOSED_AT, sequence=2),
        answer([lead(3)], fetched_at=partial_at, sequence=3),
    ]
    alone = Lake(tmp_path / "alone")
    for one in sorted(answers, key=lambda one: one.sequence or 0):
        alone.land(one, "run")
    for number in order:
        machine(f"machine-{number}").land(answers[number], "run")
    together = machine("together")
    together.refresh()

    assert versions(the_file(together)) == versions(the_file(alone))
    [expected], [window] = alone.landed_windows(APPLICANT, DAY), together.landed_windows(APPLICANT, DAY)
    kept = ("leads", "rows", "looked_at", "sequence", "is_closed", "is_partial", "start", "end")
    assert {name: getattr(window, name) for name in kept} == {name: getattr(expected, name) for name in kept}


def test_a_machine_that_was_away_takes_nothing_back(machine: Callable[[str], Lake], store: FolderStore) -> None:
    one, two = machine("one"), machine("two")
    one.land(answer(TWENTY, sequence=1), "run-1")
    two.refresh()
    one.suppression.append(entry(Action.ERASE, "lead-03"))
    for path in one.raw_files(APPLICANT, DAY):
        one.pass_again(path)
    for number in (2, 3):
        one.land(answer(TWENTY[5:], fetched_at=LATER, sequence=number), "run-2")
    before = raw_keys(store)
    two.refresh()

    assert raw_keys(store) == before
    assert "lead-03" not in payloads(the_file(two))
    assert the_file(two).read_bytes() == the_file(one).read_bytes()
    assert len(raw_keys(store)) == 1


def test_a_machine_that_lands_meanwhile_brings_nobody_back(machine: Callable[[str], Lake]) -> None:
    one, two, three = machine("one"), machine("two"), machine("three")
    one.land(answer(TWENTY, sequence=1), "run-1")
    two.refresh()
    one.suppression.append(entry(Action.ERASE, "lead-03"))
    one.pass_again(the_file(one))
    two.land(answer(TWENTY, fetched_at=LATER, sequence=2), "run-2")  # it has not heard of it yet
    assert "lead-03" in payloads(the_file(two))
    for lake in (three, two, one):
        lake.refresh()

    for lake in (one, two, three):
        assert payloads(the_file(lake)).keys() == {f"lead-{number:02}" for number in range(20)} - {"lead-03"}
        [window] = lake.landed_windows(APPLICANT, DAY)
        assert (window.leads, window.removed) == (19, 1)


def test_pushed_leads_and_inventories_meet_as_well(machine: Callable[[str], Lake]) -> None:
    one, two = machine("one"), machine("two")
    items = [InventoryItem(id_, json.dumps({"id": id_}), 1) for id_ in ("a", "b")]
    for number, lake in enumerate((one, two), 1):
        pushed = PushedLead(APPLICANT, lead(number), CLOSED_AT + timedelta(minutes=number), number)
        lake.land_pushed(APPLICANT, DAY, "branch-101", [pushed], "run")
        lake.land_inventory(DAY, {"Leeds": [items[number - 1]]}, CLOSED_AT, "run", number)
    one.refresh()
    two.refresh()

    for lake in (one, two):
        assert lake.pushed_leads(APPLICANT, DAY) == {"lead-01": 1, "lead-02": 2}
        [path] = lake.inventory_files()
        assert path.read_bytes() == one.inventory_files()[0].read_bytes()


def test_what_is_received_later_is_newer_than_what_was_fetched_from_the_store(machine: Callable[[str], Lake]) -> None:
    ahead = sequence_of(None, datetime.now(UTC) + timedelta(days=2))
    one, two = machine("one"), machine("two")
    one.land(answer(TWENTY, sequence=ahead), "run-1")
    two.refresh()

    assert two.next_sequence() > ahead


def test_what_is_replaced_meanwhile_is_looked_for_again(tmp_path: Path, store: FolderStore) -> None:
    one = Lake(tmp_path / "one", store=store)
    one.land(answer(TWENTY, sequence=1), "run-1")

    class Overtaken(Breaking):
        def get(self, key: str) -> bytes | None:
            if key.startswith("raw/") and self.left is None:
                self.left = 1_000_000
                one.land(answer([lead(77)], fetched_at=LATER, sequence=2), "run-2")
            return super().get(key)

    two = Lake(tmp_path / "two", store=Overtaken(store))
    two.refresh()

    assert the_file(two).read_bytes() == the_file(one).read_bytes()
    assert "lead-77" in payloads(the_file(two))


# --- the store and the folder -----------------------------------------------------------------------------------------


def test_a_folder_moves_into_a_store_and_back(tmp_path: Path, store: FolderStore) -> None:
    alone = Lake(tmp_path / "data")
    alone.claim("https://portal.example")
    key, first = alone.person_key(), alone.remember_start_date(DAY)
    alone.land(answer(TWENTY), "run-1")
    alone.suppression.append(entry(Action.ERASE, "lead-90"))
    before = the_file(alone).read_bytes()

    Lake(tmp_path / "data", store=store).refresh()
    other = Lake(tmp_path / "other", store=store)
    other.refresh()

    assert (other.claimed_by(), other.person_key(), other.start_date()) == ("https://portal.example", key, first)
    assert [one.action for one in other.suppression.read().entries] == [Action.ERASE]
    back = Lake(tmp_path / "other")  # the same folder, without the store
    assert the_file(back).read_bytes() == before
    assert back.landed_windows(APPLICANT, DAY)


def test_a_folder_of_other_leads_is_refused(tmp_path: Path, store: FolderStore) -> None:
    Lake(tmp_path / "one", store=store).claim("https://portal.example")
    demo = Lake(tmp_path / "demo")
    demo.claim("http://127.0.0.1:1")
    demo.land(answer(TWENTY), "run-1")

    with pytest.raises(SettingsError, match=r"isn't a copy of file:.*another origin"):
        Lake(tmp_path / "demo", store=store).refresh()
    assert raw_keys(store) == []


def test_two_new_machines_have_one_key_and_one_first_day(machine: Callable[[str], Lake]) -> None:
    one, two = machine("one"), machine("two")
    assert one.person_key() == two.person_key()
    assert one.remember_start_date(DAY) == two.remember_start_date(DAY + timedelta(days=3)) == DAY


def test_what_somebody_deleted_from_the_store_is_put_back(machine: Callable[[str], Lake], store: FolderStore) -> None:
    one = machine("one")
    one.land(answer(TWENTY), "run-1")
    keys = raw_keys(store)
    store.delete(keys)
    one.refresh()

    assert raw_keys(store) == keys


def test_a_damaged_file_is_fetched_again(machine: Callable[[str], Lake]) -> None:
    one = machine("one")
    path = one.land(answer(TWENTY), "run-1").path
    whole = path.read_bytes()
    path.write_bytes(whole[:100] + b"?" + whole[101:])
    one.refresh()

    assert path.read_bytes() == whole
    path.write_bytes(whole[:100] + b"?" + whole[101:])
    assert one.landed_windows(APPLICANT, DAY) == []  # whoever reads it sets it aside
    one.refresh()

    assert path.read_bytes() == whole
    assert one.quarantined() == []


def test_a_damaged_object_is_set_aside_and_made_anew_from_a_folder_that_has_it(
    machine: Callable[[str], Lake], store: FolderStore, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    one, two = machine("one"), machine("two")
    one.land(answer(TWENTY), "run-1")
    [key] = raw_keys(store)
    (tmp_path / "store" / key).write_bytes(b"rot")
    two.refresh()
    assert two.landed_windows(APPLICANT, DAY) == []
    assert "is damaged. It was moved to quarantine/" in caplog.text
    assert store.list("quarantine/") == [f"quarantine/{key}"]
    one.refresh()
    two.refresh()

    assert raw_keys(store) == [key]
    assert the_file(two).read_bytes() == the_file(one).read_bytes()


@pytest.mark.parametrize(
    "key",
    [
        "raw/applicant_leads/leads-{name}.parquet",
        "raw/applicant_leads/day=2026-19-11/scope=branch-101/leads-{name}.parquet",
        "raw/applicant_leads/day=2026-11-19/scope=.hidden/leads-{name}.parquet",
        "raw/applicant_leads/day=2026-11-19/scope=branch-101/leads-{name}.parquet.bak",
        "raw/other/day=2026-11-19/scope=branch-101/leads-{name}.parquet",
        "raw/readme.txt",
        "frozen/readme.parquet",
        "spool/deep/er.pushed",
        "spool/readme.txt",
    ],
)
def test_what_is_not_ours_is_left_where_it_is(machine: Callable[[str], Lake], store: FolderStore, key: str) -> None:
    key = key.format(name="0123456789abcdef" * 2)
    one = machine("one")
    one.land(answer(TWENTY), "run-1")
    store.create(key, b"somebody else's")
    two = machine("two")
    two.refresh()

    assert Spool(two).waiting() == []
    assert store.get(key) == b"somebody else's"
    assert [path for path in two.folder.rglob("*") if path.is_file() and path.read_bytes() == b"somebody else's"] == []


def test_a_file_of_another_place_is_fetched_anew(machine: Callable[[str], Lake]) -> None:
    one = machine("one")
    path = one.land(answer(TWENTY), "run-1").path
    other = Window.of(DAY, Scope.parse("branch-102"), UTC_ZONE)
    elsewhere = one.land(answer(TWENTY[:1], window=other), "run-1").path
    whole = path.read_bytes()
    shutil.copy(elsewhere, path)
    one.refresh()

    assert path.read_bytes() == whole


# --- the list ---------------------------------------------------------------------------------------------------------


def test_two_machines_that_add_to_the_list_at_once_have_both_entries(machine: Callable[[str], Lake]) -> None:
    one, two = machine("one"), machine("two")
    made: list[int] = []

    def beside(suppressed: Suppressed, number: int) -> Entry:
        if not made:
            made.append(number)
            two.suppression.append(entry(Action.OBJECT, "lead-02"))  # while this one is being made
        return entry(Action.ERASE, "lead-01")(suppressed, number)

    one.suppression.append(entry(Action.RESTRICT, "lead-00"))
    assert one.suppression.append(beside).number == 3
    two.refresh(())

    expected = [(1, Action.RESTRICT), (2, Action.OBJECT), (3, Action.ERASE)]
    for lake in (one, two):
        suppressed = lake.suppression.read()
        assert [(one.number, one.action) for one in suppressed.entries] == expected
        assert suppressed.erased.is_known("applicant", "lead-01")


def test_a_list_that_somebody_changed_in_the_store_is_refused(machine: Callable[[str], Lake], tmp_path: Path) -> None:
    one, two = machine("one"), machine("two")
    one.suppression.append(entry(Action.ERASE, "lead-01"))
    path = tmp_path / "store" / "privacy" / "list" / "00000001"
    path.write_bytes(path.read_bytes().replace(b"erase", b"objec"))

    with pytest.raises(StorageError, match="isn't as it was written"):
        two.refresh()


def test_a_version_of_the_list_that_somebody_deleted_from_the_store_is_put_back(
    machine: Callable[[str], Lake], store: FolderStore
) -> None:
    one, new = machine("one"), machine("new")
    for number in range(3):
        one.suppression.append(entry(Action.ERASE, f"lead-{number}"))
    store.delete(["privacy/list/00000003"])
    one.refresh()
    new.refresh()

    assert [one.number for one in new.suppression.read().entries] == [1, 2, 3]


def test_rows_that_one_machine_set_aside_are_landed_again_by_another(
    machine: Callable[[str], Lake], store: FolderStore
) -> None:
    one, two = machine("one"), machine("two")
    one.land(answer(TWENTY, sequence=1), "run-1")
    before = payloads(the_file(one))
    number = one.suppression.append(entry(Action.RESTRICT, "lead-03")).number
    one.pass_again(the_file(one))
    two.refresh()
    assert "lead-03" not in payloads(the_file(two))
    [aside] = two.restricted_files()
    assert payloads(aside).keys() == {"lead-03"}

    two.suppression.append(lambda _, new: Entry(number=new, at=CLOSED_AT, action=Action.LIFT, of=number))
    two.sweep_restricted(aside, lambda: None)
    assert payloads(the_file(two)) == before
    assert (list(two.restricted_files()), store.list("restricted/")) == ([], [])


def test_a_delivery_of_somebody_who_is_erased_meanwhile_is_found_in_the_store(
    machine: Callable[[str], Lake], store: FolderStore
) -> None:
    receiving, other = machine("one"), machine("two")
    Spool(receiving).add([PushedLead(APPLICANT, lead(number), CLOSED_AT, number + 1) for number in range(2)])
    other.suppression.append(entry(Action.ERASE, "lead-00"))

    assert Spool(other).drop_erased() == 1
    [key] = store.list("spool/")
    assert b"lead-00" not in (store.get(key) or b"")
    assert b"lead-01" in (store.get(key) or b"")


# --- deliveries -------------------------------------------------------------------------------------------------------


def test_a_delivery_is_in_the_store_before_it_is_answered_and_is_landed_by_another_machine(
    machine: Callable[[str], Lake], store: FolderStore
) -> None:
    one, two = machine("one"), machine("two")
    Spool(one).add([PushedLead(APPLICANT, lead(1), CLOSED_AT, 1)])
    assert len(store.list("spool/")) == 1
    spool = Spool(two)
    assert Spool(one).waiting()
    for _ in spool.take_in(Placement([Scope.parse("branch-101")], UTC_ZONE, DAY), "run"):
        """It is landed once the next portion is asked for."""

    assert store.list("spool/") == []
    assert spool.waiting() == []
    for _ in Spool(one).take_in(Placement([Scope.parse("branch-101")], UTC_ZONE, DAY), "run"):
        """What one had fetched as well is landed twice, to no harm."""
    assert Spool(one).waiting() == []
    one.refresh()
    assert [one.lead_ids(APPLICANT, day) for day in one.landed_days(APPLICANT)] == [{"lead-01"}]
    assert len(raw_keys(store)) == 1


# --- all of it, by chance, with processes that end anywhere -----------------------------------------------------------


def do(what: str, lake: Lake, received: Sequence[ReceivedLead], sequence: int) -> None:
    if what == "land":
        lake.land(answer(received, fetched_at=CLOSED_AT + timedelta(seconds=sequence), sequence=sequence), "run")
    elif what == "push":
        pushed = [PushedLead(APPLICANT, one, CLOSED_AT, sequence) for one in received]
        lake.land_pushed(APPLICANT, DAY, "branch-101", pushed, "run")
    else:
        lake.refresh()


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    steps=st.lists(
        st.tuples(
            st.sampled_from(["land", "land", "land", "refresh", "push"]),
            st.integers(0, 2),  # the machine
            st.lists(st.integers(0, 6), max_size=4, unique=True),
            st.one_of(st.none(), st.integers(0, 7)),  # after which verb it ends
            st.booleans(),  # and whether its disk is lost then
        ),
        max_size=14,
    )
)
@pytest.mark.slow
def test_nothing_that_was_said_to_be_landed_is_lost_or_older(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int, list[int], int | None, bool]]
) -> None:
    root = tmp_path_factory.mktemp("machines")
    stores = [Breaking(FolderStore(root / "store")) for _ in range(3)]
    lakes = [Lake(root / f"machine-{number}", store=store) for number, store in enumerate(stores)]
    said: dict[str, int] = {}
    for sequence, (what, number, ids, ends, is_lost) in enumerate(steps, 1):
        lake, stores[number].left = lakes[number], ends
        received = [ReceivedLead(f"lead-{id_}", json.dumps({"id": f"lead-{id_}", "at": sequence})) for id_ in ids]
        try:
            do(what, lake, received, sequence)
        except Interrupted:
            if is_lost:
                shutil.rmtree(lake.folder, ignore_errors=True)
            continue
        finally:
            stores[number].left = None
        if what != "refresh":
            said |= {one.lead_id: sequence for one in received}
    for lake in [*lakes, Lake(root / "new", store=stores[0]), *lakes]:
        lake.refresh()

    for lake in [*lakes, Lake(root / "new", store=stores[0])]:
        newest: dict[str, int] = {}
        for path in lake.raw_files(APPLICANT, DAY):
            for id_, payload in payloads(path).items():
                newest[id_] = max(newest.get(id_, 0), json.loads(payload)["at"])
        assert {id_: at for id_, at in said.items() if newest.get(id_, 0) < at} == {}
    keys = stores[0].list("raw/")
    assert len(keys) == len({key.rpartition("-")[0] for key in keys})
    shutil.rmtree(root)
