"""Leads that drift in every way, and where each of their values went, for test_typed_rows.py.

The values are looked up by other means than the pipeline's: JSON as Python's json reads it, with
every number as it was written and every member of an object, the repeated ones too.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, Final

from leads_pipeline.domain.contract import ChildTable, Field, FieldType, LeadKind

Row = Mapping[str, Any]


class Members(list[tuple[str, Any]]):
    """A JSON object as the list of its members, so that a key can stand twice."""


class Number(str):
    """A JSON number as it was written."""


def parsed(text: str) -> Any:
    """JSON with nothing lost: objects as Members, numbers as Number."""
    return json.loads(text, object_pairs_hook=Members, parse_int=Number, parse_float=Number)


# --- what comes -----------------------------------------------------------------------------------

# As JSON texts, since most of what is odd about a value is gone once it is parsed.
PLAIN = {
    FieldType.TEXT: ('"Ann"', '"two words"'),
    FieldType.BOOLEAN: ("true", "false"),
    FieldType.INTEGER: ("3", "9223372036854775807", "-9223372036854775808"),
    FieldType.NUMBER: ("0.25", "-1e-3"),
    FieldType.AMOUNT: ("250000.10", "1.25E7", "9999999999999999.99"),
    FieldType.MOMENT: ('"2026-11-19T10:20:30Z"', '"2026-11-19T10:20Z"', '"0001-01-01T00:00Z"'),
}
MOMENTS = (
    '"2026-11-19T10:20:30.123456789Z"', '"2026-11-19T10:20:30-0530"', '"2026-11-19t10:20:30z"',
    '"2016-12-31T23:59:60Z"', '"2026-02-29T00:00:00Z"', '"2026-11-19T24:00:00Z"', '"infinity"',
    '"0001-01-01T00:00:00Z"', '"9999-12-31T23:59:59Z"', '"2026-11-19"', "1763547630",
)  # fmt: skip
NUMBERS = (
    "0", "-0", "-0.0", "3.0", "3.5", "1.50", "1E5", "1e-9", "1e30", "1e400", "9223372036854775808",
    "9007199254740993", "1.005", "1" * 5000, "99999999999999999.99", "true", '"12"', '" 12"', '"012"',
    '"1_000"', '"0x1F"', '"٣"', '"1.50"', '"1,5"', '"NaN"', '"£350,000"',
)  # fmt: skip
TEXTS = (
    '""', '" "', '"null"', '"{\\"a\\":1}"', '"a\\"b"', '"a\\\\b"', '"a\\u0000b"', '"e\u0301"',
    '"\\ud83d\\ude00"', '"\\u2028\u2028"', "\"'; drop table leads; --\"",
)  # fmt: skip
CONTAINERS = (
    "[]", "{}", "[[]]", "[null]", '{"a":1}', '{"":{"":1.50}}', '[1,"x",{"a":null}]', '{"email":"x"}',
    '[{"earliest":"2026-11-20T10:00Z"}]', "[" * 300 + "]" * 300, '{"a":' * 300 + "1" + "}" * 300,
)  # fmt: skip
ODD = {
    FieldType.TEXT: (*TEXTS, *NUMBERS, "0.1000000000000000055511151231257827"),
    FieldType.BOOLEAN: ("0", '"true"', '"TRUE"', '"yes"', '""'),
    FieldType.INTEGER: NUMBERS,
    FieldType.NUMBER: NUMBERS,
    FieldType.AMOUNT: (*NUMBERS, "9007199254740993.01", "0.125", '"1.005"'),
    FieldType.MOMENT: MOMENTS,
}
ODD_NAMES = (
    "new", "Contact", "_extra", "_problems", "lead_id", "select", "", " ", ".", "a.b", "contact.email", "$.id",
    '"', "'", "/", "[0]", "*", "\\", "\n", "\x00", "é", "😀", "ID", "0", "x" * 300,
)  # fmt: skip


def leads_with_one_change(kind: LeadKind) -> list[str]:
    """Texts of leads with every declared member, each value as declared, but for one thing in each
    that may be odd: a value, what stands for an object or a list, or the name of a further member.
    """
    lists = [child.path for child in kind.children]
    objects = sorted({field.path.rpartition(".")[0] for field in kind.fields})
    leads = [_whole(kind), Members()]
    for fields, path in (
        (kind.fields, ""),
        *((child.fields, child.path) for child in kind.children),
    ):
        for field in fields:
            for value in (*PLAIN[field.type], *ODD[field.type], *CONTAINERS, "null"):
                leads.append(lead := _whole(kind))
                _put(_owner(lead, path), field.path, value)
    for path in (*objects[1:], *lists):
        for value in (*CONTAINERS, "null", "5"):
            leads.append(lead := _whole(kind))
            _put(lead, path, value)
    for path in (*objects, *lists):
        for name in ODD_NAMES:
            leads.append(lead := _whole(kind))
            _owner(lead, path).append((json.dumps(name), "1.50"))

    texts = []
    for number, lead in enumerate(leads):
        lead.insert(number % (len(lead) + 1), ('"id"', f'"lead-{number}"'))
        texts.append(_json(lead, ("", "", " ", "\n\t")[number % 4]))
    return texts


def _whole(kind: LeadKind) -> Members:
    lead = Members()
    for field in kind.fields:
        _put(lead, field.path, PLAIN[field.type][0])
    for child in kind.children:
        elements = [Members(), Members()]
        for field in child.fields:
            for element in elements:
                _put(element, field.path, PLAIN[field.type][0])
        _put(lead, child.path, elements)
    return lead


def _put(lead: Members, path: str, value: Any) -> None:
    parent, _, name = path.rpartition(".")
    members = _object(lead, parent)
    key = json.dumps(name)
    at = next((at for at, (there, _) in enumerate(members) if there == key), len(members))
    members[at : at + 1] = [(key, value)]


def _object(lead: Members, path: str) -> Members:
    """The object at the path, made where there is none."""
    found = lead
    for step in filter(None, path.split(".")):
        inner = dict(found).get(json.dumps(step))
        if not isinstance(inner, Members):
            inner = Members()
            _put(found, step, inner)
        found = inner
    return found


def _owner(lead: Members, path: str) -> Members:
    """The object at the path, or the last element of the list there."""
    parent, _, name = path.rpartition(".")
    inner = dict(_object(lead, parent)).get(json.dumps(name))
    if isinstance(inner, list) and not isinstance(inner, Members):
        last: Members = inner[-1]
        return last
    return _object(lead, path)


def _json(value: Any, space: str) -> str:
    if isinstance(value, Members):
        members = [f"{key}{space}:{space}{_json(inner, space)}" for key, inner in value]
        return f"{{{space}{f'{space},{space}'.join(members)}{space}}}"
    if isinstance(value, list):
        return f"[{space}{','.join(_json(inner, space) for inner in value)}{space}]"
    return str(value)


# --- where it went --------------------------------------------------------------------------------

# What is declared, by its path. Where a lead's id went is its rows' `lead_id`.
_Known = Mapping[str, Field | ChildTable | None]


def lost(
    kind: LeadKind, lead: Members, row: Row, children: Mapping[str, Sequence[Row]]
) -> Iterator[str]:
    """What can't be found again of a lead, in words.

    `children` are its rows in each child table, by position.
    """
    known: _Known = {
        "id": None,
        **{field.path: field for field in kind.fields},
        **{child.path: child for child in kind.children},
    }
    yield from _lost_members(lead, "", row, known, children)


def _lost_members(
    members: Members, path: str, row: Row, known: _Known, children: Mapping[str, Sequence[Row]]
) -> Iterator[str]:
    for key, value in dict(members).items():  # of a key that stands twice, the last value counts
        place = f"{path}.{key}" if path else key
        if place in row["_problems"]:
            continue
        # A dot in a key is no step down.
        match known.get(place, _NEW) if "." not in key else _NEW:
            case Field() as field:
                if not _is_in_column(field, value, row[field.column]):
                    yield f"{place} is {value!r}, its column {row[field.column]!r}"
            case ChildTable() as child:
                yield from _lost_elements(child, value, children[child.name])
            case None:
                pass
            case _ if "." not in key and any(one.startswith(f"{place}.") for one in known):
                if isinstance(value, Members):
                    yield from _lost_members(value, place, row, known, children)
                elif value is not None:
                    yield f"{place} is no object, and nothing says so"
            case _:
                yield from _lost_unknown([*filter(None, path.split(".")), key], value, row)


_NEW: Final = object()


def _lost_unknown(steps: Sequence[str], value: Any, row: Row) -> Iterator[str]:
    if not _is_in_extra(steps, value, row["_extra"]):
        yield f"{steps} is unknown, {value!r}, and not in {row['_extra']!r}"


def _lost_elements(child: ChildTable, value: Any, rows: Sequence[Row]) -> Iterator[str]:
    elements = [] if value is None else value
    if not isinstance(elements, list) or isinstance(elements, Members):
        yield f"{child.path} is no list, and nothing says so"
        return
    if [row["position"] for row in rows] != list(range(len(elements))):
        yield f"{child.path} has {len(elements)} elements, {child.name} {len(rows)} rows"
        return
    fields: _Known = {field.path: field for field in child.fields}
    for row, element in zip(rows, elements, strict=True):
        if isinstance(element, Members):
            for said in _lost_members(element, "", row, fields, {}):
                yield f"{child.path}: {said}"
        elif "not an object" not in row["_problems"]:
            yield f"an element of {child.path} is no object, and nothing says so"


def _is_in_extra(path: Sequence[str], value: Any, extra: str | None) -> bool:
    found = parsed(extra or "{}")
    for step in path:
        inner = [inner for key, inner in found if key == step] if isinstance(found, Members) else []
        if len(inner) != 1:
            return False
        found = inner[0]
    return type(found) is type(value) and bool(found == value)


def _is_in_column(field: Field, value: Any, typed: Any) -> bool:
    text = str(value)
    if value is None or typed is None:
        is_unknown = field.type is FieldType.MOMENT and text.startswith("0001-01-01T00:00")
        return value is typed or is_unknown
    if isinstance(value, list):
        return False
    match field.type:
        case FieldType.TEXT:
            return bool(typed == (text.lower() if isinstance(value, bool) else text))
        case FieldType.BOOLEAN:
            return bool(typed == {"true": True, "false": False}.get(text.lower()))
        case FieldType.MOMENT:
            return bool(typed == _moment(text))
        case FieldType.NUMBER:
            return bool(typed == float(text))
        case _:
            return bool(Decimal(text) == typed)


def _moment(text: str) -> datetime:
    """As RFC 3339 has it; finer than a microsecond is cut off, and a leap second is the one after."""
    is_leap = text[17:19] == "60"
    whole = re.sub(r"(\.\d{6})\d+", r"\1", f"{text[:17]}59{text[19:]}" if is_leap else text)
    return datetime.fromisoformat(whole.upper()).astimezone(UTC) + timedelta(seconds=is_leap)
