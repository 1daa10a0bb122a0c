"""What lies around the code: lock files, .env.example, the folders' own documents, the Makefile."""

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable
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


def locked() -> dict[str, str]:
    """Package → version of the lock file."""
    pins = re.findall(r"^([A-Za-z0-9._-]+)==([^ ;\\]+)", LOCK, re.MULTILINE)
    return {canonicalize_name(package): version for package, version in pins}


def requirements(groups: Iterable[list[str]]) -> list[Requirement]:
    return [Requirement(text) for group in groups for text in group]


OF_DEVELOPERS = requirements(PROJECT["dependency-groups"].values())
OF_USERS = requirements(
    [PROJECT["project"]["dependencies"], *PROJECT["project"]["optional-dependencies"].values()]
)


def test_every_requirement_is_met_by_the_locked_version() -> None:
    pins = locked()
    for wanted in [*OF_USERS, *OF_DEVELOPERS]:
        version = pins[canonicalize_name(wanted.name)]
        assert wanted.specifier.contains(version), f"{wanted}: run `make lock`"


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
    declared = {canonicalize_name(wanted.name) for wanted in OF_USERS}
    foreign = imported - sys.stdlib_module_names - {"leads_pipeline"}
    for name in foreign:
        assert declared & set(map(canonicalize_name, packages[name])), name


def test_every_locked_package_has_hashes_and_no_address() -> None:
    text = re.sub(r"^ *#.*\n", "", LOCK, flags=re.MULTILINE)
    entries = re.split(r"^(?=[A-Za-z0-9])", text, flags=re.MULTILINE)[1:]
    assert len(entries) == len(locked()) > 100
    assert [entry.split()[0] for entry in entries if "--hash=sha256:" not in entry] == []
    assert "://" not in LOCK
    assert not re.search(r"^\s*-(?!-hash=sha256:)", text, re.MULTILINE)


def shown_texts(tree: ast.Module) -> list[str]:
    """The texts of a module that a user may see.

    The docstrings of commands and finders are shown, and these have decorators. Other docstrings
    aren't.
    """
    hidden = []
    for node in ast.walk(tree):
        is_shown = isinstance(node, ast.FunctionDef) and node.decorator_list
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and not is_shown:
            hidden.append(ast.get_docstring(node, clean=False))

    constants = [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)]
    return [text for text in constants if isinstance(text, str) and text not in hidden]


def test_no_message_names_a_file_that_a_wheel_does_not_have() -> None:
    """Fault 110: messages sent people to pages and files of the checkout."""
    package = ROOT / "leads_pipeline"
    shown = {path: "\n".join(shown_texts(tree)) for path, tree in modules().items()}
    # Files of other kinds are shown or written as they are. `init` changes those of deploy/.
    for path in package.rglob("*.*"):
        if path.suffix in {".yaml", ".sql", ".jinja"} and path.parent.name != "deploy":
            shown[path] = path.read_text(encoding="utf-8")

    # In a checkout alone, this message names its lock file.
    errors = package / "errors.py"
    shown[errors] = shown[errors].replace("requirements.lock", "", 1)
    for path, text in shown.items():
        assert not ONLY_IN_A_CHECKOUT.findall(text), path


def tracked_files() -> list[str]:
    command = ["git", "ls-files", "-z"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode != 0:
        pytest.skip("not a git checkout")
    return listed.stdout.rstrip("\0").split("\0")


def test_no_tracked_file_names_a_package_index() -> None:
    # Written so that it doesn't find itself.
    index = re.compile(rb"pypi[.]org|pythonhosted[.]org|registry[.]npmjs|--[i]ndex-url|file:[/]//")
    files = [ROOT / name for name in tracked_files()]
    assert [path for path in files if path.is_file() and index.search(path.read_bytes())] == []


def test_no_data_and_no_secret_is_tracked() -> None:
    names = tracked_files()
    assert [name for name in names if name.startswith("data/")] == ["data/README.md"]
    assert ".env" not in names


def test_make_alone_lists_every_command() -> None:
    makefile = (ROOT / "Makefile").read_text()
    commands = set(re.findall(r"^([a-z-]+):.*## ", makefile, re.MULTILINE))
    assert commands >= {"demo", "test", "dev", "check", "chaos", "bench", "docs", "lock", "clean"}

    shown = subprocess.check_output(["make"], cwd=ROOT, text=True)

    assert set(re.findall(r"^  make ([a-z-]+) +\S", shown, re.MULTILINE)) == commands


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
    assert not (tmp_path / "venv").exists()


@pytest.mark.slow
def test_an_installation_from_a_slow_index_shows_how_far_it_is(tmp_path: Path) -> None:
    """Fault 91: it took minutes without a sign of life, and said that it takes 15 seconds."""
    slow = "sleep 1.5; echo 'Resolved 180 packages'; sleep 1"
    (tmp_path / "bin").mkdir()
    for program, text in {"uv": slow, "pip": ""}.items():
        (tmp_path / "bin" / program).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / "bin" / program).chmod(0o755)
    (tmp_path / "uv.lock").touch()  # so uv counts as installed

    # The tests run in make themselves, which would say which folder it enters.
    command = ["make", "--no-print-directory", "venv", f"VENV={tmp_path}", "SIGN_OF_LIFE_SECONDS=1"]
    shown = subprocess.check_output(command, cwd=ROOT, text=True)

    assert shown.splitlines()[:2] == [
        "  1 s: waiting for the package index",
        "  2 s: Resolved 180 packages",
    ]


def test_the_table_of_promises_names_each_test() -> None:
    """By its file, or by its folder."""
    told = (TESTS / "README.md").read_text(encoding="utf-8")
    linked = {TESTS / link for link in re.findall(r"\]\(([\w./]+)\)", told)}
    for path in TESTS.rglob("test_*.py"):
        assert linked & {path, *path.parents}, path
