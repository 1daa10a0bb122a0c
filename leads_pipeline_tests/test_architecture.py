"""The shape of the code, held by its syntax trees: layers, vendors at home, names, docstrings, a test file each."""

import ast
import graphlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = "leads_pipeline"
SIMULATOR = "simulator"

# From top to bottom. A module imports from lines below its own, never from its own line or one above.
LAYERS = (
    ("cli",),
    ("runs", "metrics"),
    ("definitions",),
    ("sensors", "housekeeping", "watch", "health", "verification"),
    ("assets",),
    ("status", "doctor"),
    ("partitions", "resources", "event_log"),
    # Dagster stops here
    ("report",),
    ("backup",),
    ("privacy",),
    ("delta",),
    ("warehouse",),
    ("drift", "damage"),
    ("flatten",),
    ("duck",),
    ("receiver", "supervisor"),
    ("spool", "landing"),
    ("lake",),
    ("client", "channels"),
    ("auth",),
    ("credentials",),
    ("branches",),
    ("suppression",),
    ("objects",),
    ("durable", "extents", "helper"),
    # I/O stops here
    ("pgp", "person"),
    ("settings", "contract"),
    ("retry", "slicing", "alerts"),
    ("window",),
    ("errors",),
)
LEVELS = {module: level for level, layer in enumerate(LAYERS) for module in layer}

ABOVE_THE_DAGSTER_LINE = {
    "cli",
    "runs",
    "metrics",
    "definitions",
    "sensors",
    "housekeeping",
    "watch",
    "health",
    "verification",
    "assets",
    "status",
    "doctor",
    "partitions",
    "resources",
    "event_log",
}
# Which modules may import a vendor's package. A vendor that isn't named here is free.
VENDOR_HOMES = {
    "httpx": {"client", "auth", "channels"},
    "pyarrow": {"lake", "flatten", "privacy"},
    "jinja2": {"report"},
    "duckdb": {"duck", "flatten", "drift", "warehouse", "privacy"},
    # In one room of it, which is imported where Delta tables are wanted.
    "deltalake": {"delta"},
    # Likewise, where the data folder is a bucket.
    "obstore": {"objects"},
    "phonenumbers": {"person"},
    "idna": {"person"},
    "dagster": ABOVE_THE_DAGSTER_LINE,
    # It turns 64-bit ids into floats, so it stays out of everything that moves leads.
    "pandas": ABOVE_THE_DAGSTER_LINE,
    # What the simulator stands on, too; the pipeline's only server is the receiver of pushes.
    "starlette": {"receiver"},
    "uvicorn": {"receiver"},
}
READERS_OF_THE_ENVIRONMENT = {"definitions"}

# A longer room says in its docstring why it is one: "One room because …".
LINES_MAX = 440
REASON = "One room because"
BANNED_NAMES = {"utils", "helpers", "common", "lib", "base", "misc"}


def test_this_project_keeps_to_its_architecture() -> None:
    assert list(violations(ROOT)) == []


def test_every_module_is_looked_at() -> None:
    modules = {module for module, _ in modules_of(ROOT)}
    assert {"window", "lake", "assets", SIMULATOR} <= modules
    assert modules - {PACKAGE, SIMULATOR} <= LEVELS.keys()


@pytest.mark.parametrize(
    ("path", "source", "complaint"),
    [
        ("window.py", '"""D."""\nfrom leads_pipeline.lake import Lake\n', "window imports lake"),
        ("window.py", '"""D."""\nfrom leads_pipeline import lake\n', "window imports lake"),
        ("window.py", '"""D."""\nfrom . import lake\n', "window imports lake"),
        ("window.py", '"""D."""\ndef f():\n    import leads_pipeline.lake as x\n', "window imports lake"),
        ("settings.py", '"""D."""\nfrom leads_pipeline.contract import Field\n', "settings imports contract"),
        ("assets/raw.py", '"""D."""\nfrom ..definitions import defs\n', "assets imports definitions"),
        ("brochure.py", '"""D."""\n', "brochure has no layer"),
        ("lake.py", '"""D."""\nimport httpx\n', "lake imports httpx"),
        ("client.py", '"""D."""\nfrom pyarrow import parquet\n', "client imports pyarrow"),
        ("lake.py", '"""D."""\nimport duckdb.typing\n', "lake imports duckdb"),
        ("warehouse.py", '"""D."""\nfrom dagster import asset\n', "warehouse imports dagster"),
        ("warehouse.py", '"""D."""\nfrom dagster_shared import x\n', "warehouse imports dagster"),
        ("flatten.py", '"""D."""\nimport pandas as pd\n', "flatten imports pandas"),
        ("flatten.py", '"""D."""\nx = __import__("pandas")\n', "flatten hides an import"),
        ("cli.py", '"""D."""\nfrom importlib import import_module\n', "cli hides an import"),
        ("client.py", '"""D."""\nimport uvicorn\n', "client imports uvicorn"),
        ("settings.py", '"""D."""\nimport os\nx = os.environ["A"]\n', "settings reads the environment"),
        ("cli.py", '"""D."""\nfrom os import getenv as g\n', "cli reads the environment"),
        ("cli.py", '"""D."""\nimport os as o\nx = o.getenv("A")\n', "cli reads the environment"),
        ("cli.py", '"""D."""\nfrom leads_pipeline.simulator import app\n', "the pipeline imports the simulator"),
        ("simulator/app.py", '"""D."""\nfrom leads_pipeline.errors import X\n', "the simulator imports errors"),
        ("simulator/app.py", '"""D."""\nfrom .. import contract\n', "the simulator imports contract"),
        ("assets/utils.py", '"""D."""\n', "utils is no name"),
        ("window.py", "x = 1\n", "window.py has no docstring"),
        ("window.py", '"""D."""\n# TODO: later\n', "window.py:2 is unfinished"),
        ("window.py", '"""D."""\ndef f():\n    """D."""\n    raise NotImplementedError\n', "window.py:4 is unfinished"),
        ("window.py", '"""D."""\ndef f():\n    ...\n', "window.py:2 is unfinished"),
        ("window.py", '"""D."""\ndef f():\n    """D."""\n    pass\n', "window.py:2 is unfinished"),
        ("retry.py", '"""D."""\n', "retry has no test_retry.py"),
        ("assets/raw.py", '"""D."""\nfrom leads_pipeline.assets import raw\n', "assets.raw → assets.raw is a circle"),
        ("window.py", '"""D."""\n' + "x = 1\n" * LINES_MAX, "window.py has 441 lines and gives no reason"),
    ],
)
def test_a_violation_is_found(tmp_path: Path, path: str, source: str, complaint: str) -> None:
    write_sound_project(tmp_path)
    file = tmp_path / PACKAGE / path
    file.parent.mkdir(exist_ok=True)
    file.write_text(source)
    assert complaint in list(violations(tmp_path))


def test_two_rooms_that_import_each_other_are_found(tmp_path: Path) -> None:
    write_sound_project(tmp_path)
    (tmp_path / PACKAGE / "assets").mkdir()
    for room, source in {"raw": "from leads_pipeline.assets.staged import x", "staged": "from .raw import y"}.items():
        (tmp_path / PACKAGE / "assets" / f"{room}.py").write_text(f'"""D."""\n{source}\n')
    assert list(violations(tmp_path)) == ["assets.raw → assets.staged → assets.raw is a circle"]


def test_a_long_room_that_gives_its_reason_is_sound(tmp_path: Path) -> None:
    write_sound_project(tmp_path)
    (tmp_path / PACKAGE / "window.py").write_text(f'"""D. {REASON} it is."""\n' + "x = 1\n" * LINES_MAX)
    assert list(violations(tmp_path)) == []


def test_a_test_file_without_its_module_is_found(tmp_path: Path) -> None:
    write_sound_project(tmp_path)
    (tmp_path / "leads_pipeline_tests" / "test_brochure.py").touch()
    assert list(violations(tmp_path)) == ["test_brochure.py has no module"]


def test_a_sound_project_has_no_violation(tmp_path: Path) -> None:
    write_sound_project(tmp_path)
    assert list(violations(tmp_path)) == []


def write_sound_project(root: Path) -> None:
    sources = {
        "__init__": '"""D."""',
        "definitions": '"""D."""\nimport os, dagster\nfrom leads_pipeline import assets\nx = os.environ',
        "assets": '"""D."""\nimport pandas\nfrom leads_pipeline.lake import Lake',
        "warehouse": '"""D."""\nimport duckdb',
        "flatten": '"""D."""\nimport duckdb, pyarrow',
        "lake": '"""D."""\nimport pyarrow\nfrom . import window\nfrom typing import Protocol\nclass P(Protocol):\n'
        "    def f(self) -> None: ...",
        "client": '"""D."""\nimport httpx',
        "settings": '"""D."""',
        "window": '"""D."""\nclass E(Exception):\n    """D."""',
        "cli": '"""D."""\nimport subprocess\nfrom leads_pipeline.definitions import x',
    }
    (root / PACKAGE).mkdir()
    (root / "leads_pipeline_tests").mkdir()
    for module, source in sources.items():
        (root / PACKAGE / f"{module}.py").write_text(source + "\n")
        if module != "__init__":
            (root / "leads_pipeline_tests" / f"test_{module}.py").touch()
    (root / PACKAGE / SIMULATOR).mkdir()
    (root / PACKAGE / SIMULATOR / "__init__.py").write_text('"""D."""\nfrom leads_pipeline.simulator.app import x\n')
    (root / PACKAGE / SIMULATOR / "app.py").write_text('"""D."""\n')
    (root / "leads_pipeline_tests" / f"test_{SIMULATOR}.py").touch()


# --- the checks -----------------------------------------------------------------------------------------------------


def modules_of(root: Path) -> Iterator[tuple[str, Path]]:
    """Every source file with the module that it belongs to: a package counts as one module."""
    for path in sorted((root / PACKAGE).rglob("*.py")):
        parts = path.relative_to(root / PACKAGE).with_suffix("").parts
        yield (PACKAGE if parts == ("__init__",) else parts[0]), path


def violations(root: Path) -> Iterator[str]:
    """One complaint per violation, in words."""
    modules = set()
    neighbours: dict[str, set[str]] = {}
    for module, path in modules_of(root):
        source = path.read_text(encoding="utf-8")
        tree = ast.parse(source)
        shown = path.relative_to(root / PACKAGE).as_posix()
        modules.add(module)
        yield from wrong_names(module, path, tree, shown)
        yield from wrong_imports(module, list(imports(tree, path.relative_to(root).with_suffix("").parts)))
        if module not in READERS_OF_THE_ENVIRONMENT and module != SIMULATOR and reads_environment(tree):
            yield f"{module} reads the environment"
        yield from unfinished(shown, source, tree)
        if (lines := source.count("\n")) > LINES_MAX and REASON not in (ast.get_docstring(tree) or ""):
            yield f"{shown} has {lines} lines and gives no reason"
        room = path.relative_to(root).with_suffix("").parts
        neighbours[".".join(room)] = set(imports(tree, room))
    yield from circles(neighbours)
    yield from untested(root, modules - {PACKAGE})


def circles(names_in: dict[str, set[str]]) -> Iterator[str]:
    """Rooms that import each other, by the names that each room imports. A package's `__init__` is a room, too."""
    rooms = {room.removesuffix(".__init__"): names for room, names in names_in.items()}

    def room_of(name: str) -> str:
        return name if name in rooms or "." not in name else room_of(name.rpartition(".")[0])

    try:
        graphlib.TopologicalSorter({room: map(room_of, names) for room, names in rooms.items()}).prepare()
    except graphlib.CycleError as error:
        yield " → ".join(room.removeprefix(f"{PACKAGE}.") for room in reversed(error.args[1])) + " is a circle"


def wrong_names(module: str, path: Path, tree: ast.Module, shown: str) -> Iterator[str]:
    if path.stem in BANNED_NAMES or path.parent.name in BANNED_NAMES:
        yield f"{path.stem} is no name"
    if not path.stem.startswith("_") and not ast.get_docstring(tree):
        yield f"{shown} has no docstring"
    if module not in LEVELS and module not in {PACKAGE, SIMULATOR}:
        yield f"{module} has no layer"


def imports(tree: ast.Module, importer: tuple[str, ...]) -> Iterator[str]:
    """Dotted names that the file imports, wherever in the file; relative ones made absolute."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            package = ".".join(importer[: -node.level]) if node.level else ""
            origin = ".".join(filter(None, (package, node.module)))
            yield from (f"{origin}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Name) and node.id == "__import__":
            yield "importlib"


def wrong_imports(module: str, names: list[str]) -> Iterator[str]:
    for name in names:
        package, _, rest = name.partition(".")
        target = rest.partition(".")[0]
        if package == PACKAGE:
            yield from wrong_neighbour(module, target)
        elif package == "importlib" and not rest.startswith(("metadata", "resources")):
            yield f"{module} hides an import"
        else:
            vendor = "dagster" if package.startswith("dagster") else package
            if module != SIMULATOR and vendor in VENDOR_HOMES and module not in VENDOR_HOMES[vendor]:
                yield f"{module} imports {vendor}"


def wrong_neighbour(module: str, target: str) -> Iterator[str]:
    if target == module:
        return
    if module == SIMULATOR:
        yield f"the simulator imports {target}"
    elif target == SIMULATOR:
        yield "the pipeline imports the simulator"
    elif target in LEVELS and LEVELS.get(module, -1) >= LEVELS[target]:
        yield f"{module} imports {target}"


def reads_environment(tree: ast.Module) -> bool:
    names = {"environ", "environb", "getenv", "getenvb"}
    return any(
        (isinstance(node, ast.Attribute) and node.attr in names)
        or (isinstance(node, ast.ImportFrom) and node.module == "os" and any(a.name in names for a in node.names))
        for node in ast.walk(tree)
    )


def unfinished(shown: str, source: str, tree: ast.Module) -> Iterator[str]:
    for number, line in enumerate(source.splitlines(), 1):
        if re.search(r"#.*\b(TODO|FIXME|XXX|HACK)\b", line):
            yield f"{shown}:{number} is unfinished"
    protocols = {
        id(method)
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef) and any(ast.unparse(b).startswith(("Protocol", "ABC")) for b in node.bases)
        for method in node.body
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Raise) and node.exc is not None and "NotImplementedError" in ast.unparse(node.exc):
            yield f"{shown}:{node.lineno} is unfinished"
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and id(node) not in protocols and is_empty(node):
            yield f"{shown}:{node.lineno} is unfinished"


def is_empty(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether there is nothing in it but a docstring, `...` or `pass`."""
    return all(
        isinstance(statement, ast.Pass)
        or (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant))
        for statement in function.body
    )


# Tests that belong to no single module.
OTHER_TESTS = {
    "buttons",
    "arrays",
    "deploy",
    "architecture",
    "checks",
    "docs",
    "earlier_versions",
    "installed",
    "marts",
    "project",
    "pipeline",
    "privacy_erase",
    "privacy_object",
    "readme",
    "delta_mirror",
    "lake_refreshing",
    "privacy_sweep",
    "retain",
    "retire",
    "secrets",
    "share",
    "turn",
    "ways_in",
}


def untested(root: Path, modules: set[str]) -> Iterator[str]:
    tests = {path.stem.removeprefix("test_") for path in (root / "leads_pipeline_tests").glob("test_*.py")}
    yield from (f"{module} has no test_{module}.py" for module in sorted(modules - tests))
    yield from (f"test_{test}.py has no module" for test in sorted(tests - modules - OTHER_TESTS))
