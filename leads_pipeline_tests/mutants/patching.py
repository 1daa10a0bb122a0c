"""Puts a mutant into a process: another body for one function, or another text in one SQL file.

Belongs here: how a mutant is declared, found and applied. Doesn't: the mutants themselves (broken.py).
"""

import builtins
import dis
import importlib
import inspect
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, Final

TESTS: Final = Path(__file__).parents[1]
ROOT: Final = TESTS.parent
# Names the mutant of a process. It doesn't begin with LEADS_, because the tests remove such variables.
VARIABLE: Final = "MUTANT"

MUTANTS: Final[dict[str, "Mutant"]] = {}


@dataclass(frozen=True)
class Mutant:
    """A broken promise in the words of the design, and the files of tests in this package that have to catch it."""

    name: str
    promise: str
    tests: Sequence[str]
    module: str = ""
    function: str = ""
    body: Callable[..., Any] | None = None
    file: str = ""
    old: str = ""
    new: str = ""


def mutant(name: str, target: str, promise: str, *tests: str) -> Callable[[Callable[..., Any]], None]:
    """Declare the decorated function as the broken body of `target`, as `storage.durable:sync`.

    The body sees the names of the target's module, and the unbroken function as `unbroken`.
    """

    def declare(body: Callable[..., Any]) -> None:
        module, _, function = target.partition(":")
        _add(Mutant(name, promise, tests, module=f"leads_pipeline.{module}", function=function, body=body))

    return declare


def sql_mutant(name: str, file: str, old: str, new: str, promise: str, *tests: str) -> None:
    """Declare that `old`, which stands once in a SQL file of the product, reads `new`."""
    _add(Mutant(name, promise, tests, file=f"leads_pipeline/{file}", old=old, new=new))


def _add(one: Mutant) -> None:
    assert one.name not in MUTANTS, one.name
    MUTANTS[one.name] = one


def unbroken(*_: Any, **__: Any) -> Any:
    """Stand for the function that a mutant replaces, in the mutant's body."""
    raise AssertionError


def check(one: Mutant) -> None:
    """Raise an AssertionError if the function, the file, the text or a test is gone."""
    for test in one.tests:
        assert (TESTS / test).exists(), f"{one.name}: {test} is gone"
    if one.file:
        count = (ROOT / one.file).read_text(encoding="utf-8").count(one.old)
        assert count == 1, f"{one.name}: the text stands {count} times in {one.file}"
    else:
        _function(one, importlib.import_module(one.module))


def _function(one: Mutant, module: ModuleType) -> FunctionType:
    found: Any = module
    for part in one.function.split("."):
        found = vars(found).get(part)
        assert found is not None, f"{one.name}: {one.module}:{one.function} is gone"
    function = found.fget if isinstance(found, property) else getattr(found, "func", found)
    function = getattr(function, "__wrapped__", function)
    assert isinstance(function, FunctionType)
    assert isinstance(one.body, FunctionType)
    assert not one.body.__closure__
    is_open = one.body.__code__.co_flags & inspect.CO_VARKEYWORDS
    assert is_open or _parameters(one.body) == _parameters(function), f"{one.name}: it takes other parameters"
    used = {step.argval for step in dis.get_instructions(one.body) if step.opname == "LOAD_GLOBAL"}
    unknown = used - function.__globals__.keys() - vars(builtins).keys() - {"unbroken"}
    assert not unknown, f"{one.name}: {one.module} has no {', '.join(sorted(unknown))}"
    return function


def _parameters(function: FunctionType) -> tuple[int, Sequence[str]]:
    """Return how many are given by place, and the names of the others. With others, any test catches the mutant."""
    code = function.__code__
    return code.co_argcount, code.co_varnames[code.co_argcount : code.co_argcount + code.co_kwonlyargcount]


def _break(one: Mutant, module: ModuleType) -> None:
    """Swap the code object, so that every module that has imported the function calls the broken one."""
    function = _function(one, module)
    assert isinstance(one.body, FunctionType)
    copy = FunctionType(function.__code__, function.__globals__, function.__name__, function.__defaults__)
    copy.__kwdefaults__ = function.__kwdefaults__
    function.__globals__["unbroken"] = copy
    function.__code__ = one.body.__code__


class _Importer(MetaPathFinder):
    """Breaks the mutant's module as soon as it is imported."""

    def __init__(self, one: Mutant) -> None:
        self._one = one

    def find_spec(self, name: str, path: Sequence[str] | None, _target: ModuleType | None = None) -> ModuleSpec | None:
        if name != self._one.module:
            return None
        spec = PathFinder.find_spec(name, path)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def execute_and_break(module: ModuleType) -> None:
                execute(module)
                _break(self._one, module)

            spec.loader.exec_module = execute_and_break  # type: ignore[method-assign]
        return spec


def _break_file(one: Mutant) -> None:
    read_text, broken = Path.read_text, ROOT / one.file

    def read_broken(self: Path, *arguments: Any, **named: Any) -> str:
        text = read_text(self, *arguments, **named)
        return text.replace(one.old, one.new) if self.name == broken.name and self.resolve() == broken else text

    Path.read_text = read_broken  # type: ignore[method-assign]


def apply_named() -> None:
    """Put the mutant that the environment names into this process. It is called before the product is imported."""
    from leads_pipeline_tests.mutants import broken  # noqa: F401 - it declares them

    one = MUTANTS[os.environ[VARIABLE]]
    if one.file:
        _break_file(one)
    else:
        assert one.module not in sys.modules
        sys.meta_path.insert(0, _Importer(one))
