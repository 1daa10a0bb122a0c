"""What lies around the code: lock files, .env.example, the folders' own documents, the Makefile."""

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from leads_pipeline_tests.support.newcomer import ONLY_IN_A_CHECKOUT

TESTS = Path(__file__).parent
ROOT = TESTS.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
LOCK = (ROOT / "requirements.lock").read_text()
SECTION = "dependency-groups"


def locked() -> dict[str, str]:
    """Package → version of the lock file."""
    pins = re.findall(r"^([A-Za-z0-9._-]+)==([^ ;\\]+)", LOCK, re.MULTILINE)
    return {canonicalize_name(package): version for package, version in pins}


def requirements(*groups: str) -> list[Requirement]:
    return [
        Requirement(text) for text in [*PROJECT["project"]["dependencies"], *from_groups(*groups)]
    ]


def from_groups(*groups: str) -> Iterator[str]:
    for group in groups:
        yield from PROJECT[SECTION].get(group) or PROJECT["project"]["optional-dependencies"][group]


EXTRAS = tuple(PROJECT["project"]["optional-dependencies"])


def test_every_requirement_is_met_by_the_locked_version() -> None:
    pins = locked()
    unmet = [
        str(wanted)
        for wanted in requirements(*EXTRAS, *PROJECT[SECTION])
        if not wanted.specifier.contains(pins.get(canonicalize_name(wanted.name), "0"))
    ]
    assert unmet == [], "run `make lock`"


@cache
def modules() -> dict[Path, ast.Module]:
    """The modules of the package, parsed."""
    package = ROOT / "leads_pipeline"
    return {path: ast.parse(path.read_bytes()) for path in package.rglob("*.py")}


def imported_by(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    return (
        [node.module] if isinstance(node, ast.ImportFrom) and node.module and not node.level else []
    )


def test_every_package_that_the_pipeline_imports_is_declared() -> None:
    imported = {
        name.partition(".")[0]
        for tree in modules().values()
        for node in ast.walk(tree)
        for name in imported_by(node)
    }
    packages = packages_distributions()
    extras = requirements(*EXTRAS)
    declared = {canonicalize_name(wanted.name) for wanted in extras}
    foreign = imported - sys.stdlib_module_names - {"leads_pipeline"}
    assert {
        name for name in foreign if not declared & set(map(canonicalize_name, packages[name]))
    } == set()


def test_every_locked_package_has_hashes_and_no_address() -> None:
    text = re.sub(r"^ *#.*\n", "", LOCK, flags=re.MULTILINE)
    entries = re.split(r"^(?=[A-Za-z0-9])", text, flags=re.MULTILINE)[1:]
    assert len(entries) == len(locked()) > 100
    assert [entry.split()[0] for entry in entries if "--hash=sha256:" not in entry] == []
    assert "://" not in LOCK
    assert not re.search(r"^\s*-(?!-hash=sha256:)", text, re.MULTILINE)


def shown_texts(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """The texts of a module that a user may see, each with the function that it is in.

    The docstrings of commands and finders are shown, and these have decorators. Other docstrings
    aren't.
    """

    def texts(node: ast.AST, function: str) -> Iterator[tuple[str, str]]:
        children = list(ast.iter_child_nodes(node))
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            is_shown = isinstance(node, ast.FunctionDef) and node.decorator_list
            if ast.get_docstring(node) is not None and not is_shown:
                children.remove(node.body[0])
        if isinstance(node, ast.FunctionDef):
            function = node.name
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield function, node.value
        for child in children:
            yield from texts(child, function)

    return texts(tree, "")


def test_no_message_names_a_file_that_a_wheel_does_not_have() -> None:
    """Fault 110: messages sent people to pages and files of the checkout."""
    package = ROOT / "leads_pipeline"
    shown = [
        (path, function, text)
        for path, tree in modules().items()
        for function, text in shown_texts(tree)
    ]
    # Files of other kinds are shown or written as they are. `init` changes those of deploy/.
    others = [path for path in package.rglob("*.*") if path.suffix in {".yaml", ".sql", ".jinja"}]
    shown += [
        (path, "", path.read_text(encoding="utf-8"))
        for path in others
        if path.parent.name != "deploy"
    ]

    named = {
        (path.relative_to(package).as_posix(), function, name)
        for path, function, text in shown
        for name in ONLY_IN_A_CHECKOUT.findall(text)
    }
    # In a checkout alone, this message names its lock file.
    assert named == {("errors.py", "how_to_install", "requirements.lock")}


def tracked_files() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "-z"],
        cwd=ROOT,
        capture_output=True,
        check=False,
    )
    if listed.returncode != 0:
        pytest.skip("not a git checkout")
    return [
        path
        for name in listed.stdout.decode().split("\0")
        if name and (path := ROOT / name).is_file()
    ]


def test_no_tracked_file_names_a_package_index() -> None:
    hosts = [
        b"pypi" + b".org",
        b"pythonhosted" + b".org",
        b"registry." + b"npmjs",
        b"--" + b"index-url",
        b"file:" + b"///",
    ]
    found = [
        path.name for path in tracked_files() if any(host in path.read_bytes() for host in hosts)
    ]
    assert found == []


def test_no_data_and_no_secret_is_tracked() -> None:
    names = {path.relative_to(ROOT).as_posix() for path in tracked_files()}
    assert {name for name in names if name.startswith("data/")} == {"data/README.md"}
    assert ".env" not in names


def test_make_alone_lists_every_command() -> None:
    shown = subprocess.run(["make"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    listed = set(re.findall(r"^  make ([a-z-]+) +\S", shown, re.MULTILINE))
    assert {
        "help",
        "demo",
        "test",
        "dev",
        "check",
        "chaos",
        "bench",
        "docs",
        "lock",
        "clean",
    } <= listed
    assert listed == set(
        re.findall(r"^([a-z-]+):.*## ", (ROOT / "Makefile").read_text(), re.MULTILINE)
    )


def test_make_says_what_to_do_about_a_python_that_is_too_old(tmp_path: Path) -> None:
    old = tmp_path / "python3"
    old.write_text("#!/bin/sh\n[ \"$1\" = --version ] && echo 'Python 3.9.2' && exit 0\nexit 1\n")
    old.chmod(0o755)
    result = subprocess.run(
        ["make", "venv", f"PYTHON={old}", f"VENV={tmp_path / 'venv'}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode != 0
    assert "needs Python 3.11 or newer" in result.stderr
    assert "Python 3.9.2" in result.stderr
    assert not (tmp_path / "venv").exists()


def install(venv: Path, uv: str) -> "subprocess.CompletedProcess[str]":
    """`make venv` in an environment with this program in place of uv, which is there already."""
    programs = {"uv": uv, "pip": ""}
    (venv / "bin").mkdir(parents=True)
    for name, text in programs.items():
        (venv / "bin" / name).write_text(f"#!/bin/sh\n{text}\n")
        (venv / "bin" / name).chmod(0o755)
    (venv / "uv.lock").touch()
    # The tests run in make themselves, which would say which folder it enters.
    command = ["make", "--no-print-directory", "venv", f"VENV={venv}", "SIGN_OF_LIFE_SECONDS=1"]
    return subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60
    )


def test_an_installation_from_a_slow_index_shows_how_far_it_is(tmp_path: Path) -> None:
    """Fault 91: it took minutes without a sign of life, and said that it takes 15 seconds."""
    result = install(
        tmp_path / "venv",
        "sleep 1.5; echo 'Resolved 180 packages'; sleep 2; echo ' + dagster==1.13'",
    )

    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines()[:2] == [
        "  1 s: waiting for the package index",
        "  2 s: Resolved 180 packages",
    ]
    assert "dagster" not in result.stdout
    assert (tmp_path / "venv" / "runtime").exists()


def test_the_table_of_promises_names_each_test() -> None:
    """By its file, or by its folder."""
    told = (TESTS / "README.md").read_text(encoding="utf-8")
    linked = set(re.findall(r"\]\(([\w./]+)\)", told))
    files = {path.relative_to(TESTS).as_posix() for path in TESTS.rglob("test_*.py")}
    untold = {
        name for name in files if not any(f"{name}/".startswith(f"{link}/") for link in linked)
    }
    assert untold == set()
