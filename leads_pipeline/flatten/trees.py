"""What the contract knows of an object, as a tree by its members' names, and how a path in it is written."""

from collections.abc import Sequence
from typing import Any, Final

from leads_pipeline.contract import ODDITIES, ChildTable, Field, LeadKind

_ODDITIES: Final = {*ODDITIES, "_extra"}

# Stands for what the portal or a lead wrote, wherever that may be personal.
HIDDEN: Final = "…"

# What the contract knows of an object: a dict for an object of its own, None for anything else.
Tree = dict[str, Any]


def objects_in(tree: Tree, path: str = "") -> dict[str, Tree]:
    """Every declared object by its path, the outermost ("") first."""
    objects = {path: tree}
    for name, inner in tree.items():
        if inner is not None:
            objects |= objects_in(inner, f"{path}.{name}" if path else name)
    return objects


def put(tree: Tree, path: str, value: object) -> None:
    """Set what is known at the path."""
    *objects, name = path.split(".")
    for step in objects:
        tree = tree.setdefault(step, {})
    tree[name] = value


def pointer(path: str) -> str:
    """The path as a JSON pointer (RFC 6901)."""
    return "".join(f"/{step}" for step in path.split(".") if step)


def tree_of(fields: Sequence[Field], lists: Sequence[ChildTable] = ()) -> Tree:
    """What is known of an object: its declared fields and its lists, whose elements have trees of their own."""
    tree: Tree = {}
    for path in (*(field.path for field in fields), *(child.path for child in lists)):
        put(tree, path, None)
    return tree


def trees_of(kind: LeadKind) -> dict[str, Tree]:
    """What the contract knows of a lead, and of an element of each of its lists, by table."""
    return {kind.table: tree_of_lead(kind), **{child.name: tree_of(child.fields) for child in kind.children}}


def declared_part(tree: Tree, problem: str) -> str:
    """What `_problems` says, up to a name that the contract doesn't know: a repeated key may be a person's name."""
    if problem in _ODDITIES:
        return problem
    inner: Tree | None = tree
    parts: list[str] = []
    for step in problem.split("."):
        if inner is None or step not in inner:
            return ".".join([*parts, HIDDEN])
        parts.append(step)
        inner = inner[step]
    return problem


def tree_of_lead(kind: LeadKind) -> Tree:
    """What is known of a lead itself."""
    return {"id": None} | tree_of(kind.fields, kind.children)
