"""One turn at suites that take too long to run whole each time: what a change touches first, the rest in seeded order.

Belongs here: which files a change touches, the order, and when a turn is over. Doesn't: running anything; conftest.py
does that for the chaos tests, chaos/mutants.py for the mutants. The seed is the chaos suite's: a log names it.
"""

import ast
import os
import subprocess
import time
from collections.abc import Callable, Iterable, Set
from functools import cache
from pathlib import Path
from random import Random
from typing import TypeVar

ROOT = Path(__file__).parents[1]

# Repeats a turn, and the seeded histories of the chaos tests.
SEED_VARIABLE = "CHAOS_SEED"

_T = TypeVar("_T")


@cache
def touched_files() -> frozenset[str]:
    """Paths, as git has them, of what the newest commit and those of the day before it changed; none without git."""
    newest = _git("log", "-1", "--format=%ct")
    if not newest:
        return frozenset()
    before = _git("rev-list", "-1", f"--before={int(newest) - 86_400}", "HEAD") or _git(
        "rev-list", "--max-parents=0", "HEAD"
    )
    return frozenset(_git("diff", "--name-only", before).splitlines())


def _git(*arguments: str) -> str:
    try:
        done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


@cache
def imported_files(test: Path) -> frozenset[str]:
    """The test's own path and those of the package's modules that it imports, as git has them."""
    tree = ast.parse(test.read_text(encoding="utf-8"))
    modules = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module}
    own = [
        ROOT / module.replace(".", "/")
        for module in modules
        if module.startswith(("leads_pipeline.", "leads_pipeline_tests."))
    ]
    files = [test, *(path.with_suffix(".py") for path in own), *(room for path in own for room in path.glob("*.py"))]
    return frozenset(path.relative_to(ROOT).as_posix() for path in files)


class Turn:
    """A turn of that many minutes; without a number it takes as long as it takes, in the given order."""

    def __init__(self, minutes: float | None) -> None:
        self.seed = os.environ[SEED_VARIABLE]
        self._minutes = minutes
        self._began = time.monotonic()

    def ordered(self, things: Iterable[_T], name: Callable[[_T], str], files: Callable[[_T], Set[str]]) -> list[_T]:
        """What the change touches first, by the files that a thing is about; within that, by chance of the seed."""
        if self._minutes is None:
            return list(things)
        touched = touched_files()
        return sorted(
            things,
            key=lambda thing: (
                not files(thing) & touched,
                Random(f"{self.seed} {name(thing)}").random(),  # noqa: S311 - to be repeated
            ),
        )

    @property
    def seconds(self) -> float:
        """How long it has taken so far."""
        return time.monotonic() - self._began

    @property
    def is_over(self) -> bool:
        """Whether its time is up: what has begun goes on, nothing more begins."""
        return self._minutes is not None and self.seconds > self._minutes * 60
