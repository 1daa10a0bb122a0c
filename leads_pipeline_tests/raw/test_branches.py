"""LEADS_BRANCHES_FILE: what it may hold, and what is said of one that is wrong."""

from pathlib import Path

import pytest

from leads_pipeline.errors import SettingsError
from leads_pipeline.raw.branches import Branches, read_branches, readable_branches


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "branches.csv"


def test_names_and_further_columns_are_read_by_scope(file: Path) -> None:
    file.write_text(
        'id,name,region,Line manager\n101,York,North,Ann\nbranch-102,"Leeds,  Headingley",,\ncompany-7,All\n'
    )
    assert read_branches(file) == Branches(
        {"branch-101": "York", "branch-102": "Leeds, Headingley", "company-7": "All"},
        ("region", "Line manager"),
        {"branch-101": ("North", "Ann"), "branch-102": (None, None), "company-7": (None, None)},
    )


@pytest.mark.parametrize(
    "content",
    [
        b"\xef\xbb\xbfid,name\r\n101,Y\xc3\xb6rk\r\n",  # as Excel writes it
        b'NAME, Id \n"Y\xc3\xb6rk", 101 \n\n,\n',
        b"name,id\nY\xc3\xb6rk,branch-101",
    ],
)
def test_the_same_names_are_written_in_many_ways(file: Path, content: bytes) -> None:
    file.write_bytes(content)
    assert read_branches(file).names == {"branch-101": "Yörk"}


def test_no_file_and_no_rows_are_no_names(file: Path) -> None:
    file.write_text("id,name\n")
    assert read_branches(None) == read_branches(file) == Branches()


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "has no column id and no name. Its first row holds nothing. Begin with id,name."),
        (b"id,branch\n101,York\n", "has no column name. Its first row holds id, branch."),
        (b"id,name,\n", "has a column without a name."),
        (b"id,name\n101,York\n\n101,Leeds\n", "has 101 a second time in row 4."),
        (b"id,name\n101,York\n102,York\n", "has the name York a second time in row 3."),
        (b"id,name\n101, \n", "has no name for 101 in row 2."),
        (b"id,name\n,York\n", "has '' for an id in row 2."),
        (
            b"id,name\n101,Leeds, Headingley\n",
            "has 3 values in row 2, for 2 columns. Quote commas.",
        ),
        (b'id,name\n101,"York\n', "is no CSV: unexpected end of data."),
        (
            b"id,name\n101,Y\xf6rk\n",
            "isn't in UTF-8. In Excel, save it as CSV UTF-8.",
        ),
    ],
)
def test_what_is_wrong_is_told_with_its_place(file: Path, content: bytes, told: str) -> None:
    file.write_bytes(content)
    with pytest.raises(SettingsError) as caught:
        read_branches(file)
    assert str(caught.value).startswith(f"LEADS_BRANCHES_FILE: {file} {told}")


def test_a_file_that_is_not_there_is_told(file: Path) -> None:
    with pytest.raises(
        SettingsError, match=r"branches.csv can't be read: No such file or directory\. Put it there"
    ):
        read_branches(file)
    with pytest.raises(SettingsError, match="can't be read: Is a directory"):
        read_branches(file.parent)


def test_a_scope_is_shown_with_its_name() -> None:
    branches = Branches({"branch-101": "York", "branch-102": "branch-102"})
    assert [branches.shown(f"branch-{id_}") for id_ in (101, 102, 103)] == [
        "branch-101 (York)",
        "branch-102",
        "branch-103",
    ]
    assert [branches.shown_window(f"2026-11-19|branch-{id_}") for id_ in (101, 102)] == [
        "2026-11-19|branch-101 (York)",
        "2026-11-19|branch-102",
    ]


def test_a_message_goes_without_names_where_they_can_t_be_read(file: Path) -> None:
    file.write_text("id,name\n101,York\n")
    assert readable_branches(file).names == {"branch-101": "York"}
    file.write_text("id\n101\n")
    assert readable_branches(file) == Branches()
