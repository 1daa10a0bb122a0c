"""Leads that drift in every way, and where each of their values went, for test_typed_rows.py.

The values are looked up by other means than the pipeline's: JSON as Python's json reads it, with
every number as it was written and every member of an object, the repeated ones too.
"""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, Final

from leads_pipeline.domain.contract import ChildTable, Field, FieldType, LeadKind

Row = Mapping[str, Any]


class Members(list[tuple[str, Any]]):
    """A JSON object as the list of its members, so that a key can stand twice."""


class Number(str):
    """A JSON number as it was written."""


# --- what comes -----------------------------------------------------------------------------------

# As JSON texts, since most of what is odd about a value is gone once it is parsed.
PLAIN = {
    FieldType.TEXT: ('"Ann"', '"two words"', '"CONTACT_METHOD_PHONE"'),
    FieldType.BOOLEAN: ("true", "false"),
    FieldType.INTEGER: ("0", "3", "-7", "9223372036854775807", "-9223372036854775808"),
    FieldType.NUMBER: ("0.25", "51.5072", "-1e-3"),
    FieldType.AMOUNT: ("250000", "250000.10", "1.25E7", "9999999999999999.99"),
    FieldType.MOMENT: ('"2026-11-19T10:20:30Z"', '"2026-11-19T10:20Z"', '"0001-01-01T00:00Z"'),
}
MOMENTS = (
    '"2026-11-19T10:20:30.123456789Z"', '"2026-11-19T10:20:30-0530"', '"2026-11-19t10:20:30z"',
    '"2016-12-31T23:59:60Z"', '"2026-02-29T00:00:00Z"', '"2026-11-19T24:00:00Z"', '"infinity"',
    '"0001-01-01T00:00:00Z"', '"9999-12-31T23:59:59Z"', '"2026-11-19"', '"2026-11-19 10:20:30Z"', "1763547630",
)  # fmt: skip
BOOLEANS = ("0", "null", '"true"', '"TRUE"', '"yes"', '""')
NUMBERS = (
    "0", "-0", "-0.0", "3.0", "3.5", "1.50", "1E5", "1e-9", "1e30", "1e400", "9223372036854775808",
    "9007199254740993", "1.005", "1" * 5000, "99999999999999999.99", "true", '"12"', '" 12"', '"012"',
    '"1_000"', '"0x1F"', '"٣"', '"1.50"', '"1e5"', '"1,5"', '"NaN"', '"£350,000"',
)  # fmt: skip
TEXTS = (
    '""', '" "', '"null"', '"{"', '"{\\"a\\":1}"', '"a\\"b"', '"a\\\\b"', '"a\\u0000b"', '"e\u0301"',
    '"\\ud83d\\ude00"', '"\\u2028\u2028"', "\"'; drop table leads; --\"",
)  # fmt: skip
CONTAINERS = (
    "[]", "{}", "[[]]", "[null]", '{"a":1}', '{"":{"":1.50}}', '{"a":1,"a":2}', '[1,"x",{"a":null}]',
    '{"email":"x"}', '[{"earliest":"2026-11-20T10:00Z"}]', "[" * 300 + "]" * 300, '{"a":' * 300 + "1" + "}" * 300,
)  # fmt: skip
ODD = {
    FieldType.TEXT: (*TEXTS, *NUMBERS, "0.1000000000000000055511151231257827"),
    FieldType.BOOLEAN: BOOLEANS,
    FieldType.INTEGER: NUMBERS,
    FieldType.NUMBER: NUMBERS,
    FieldType.AMOUNT: (*NUMBERS, "9007199254740993.01", "0.125", "1.999", '"1.005"'),
    FieldType.MOMENT: MOMENTS,
}
# JSON's grammar knows none of these, and UTF-8 not the last.
NO_JSON = ("NaN", "-Infinity", '"a\tb"', '"cut \\ud83d"', "01", "tru", '"caf\udce9"')
ODD_NAMES = (
    "new", "Contact", "_extra", "_problems", "lead_id", "select", "", " ", ".", "a.b", "contact.email", "$.id",
    '"', "'", "/", "~1", "[0]", "*", "\\", "\n", "\x00", "é", "😀", "ID", "0", "x" * 300,
)  # fmt: skip
IDS = (
    "null",
    '""',
    '" "',
    "{}",
    "true",
    "5",
    "1.50",
    '"\\ud83d"',
    '"a\\u0062"',
    '"../é"',
    '"same"',
)


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
        inner = dict(reversed(found)).get(json.dumps(step))
        if not isinstance(inner, Members):
            inner = Members()
            _put(found, step, inner)
        found = inner
    return found


def _json(value: Any, space: str) -> str:
    if isinstance(value, Members):
        members = f"{space},{space}".join(
            f"{key}{space}:{space}{_json(inner, space)}" for key, inner in value
        )
        return f"{{{space}{members}{space}}}"
    if isinstance(value, list):
        return f"[{space}{','.join(_json(inner, space) for inner in value)}{space}]"
    return str(value)


def leads_with_one_change(kind: LeadKind) -> list[str]:
    """Texts of leads with every declared member, each value as declared, but for one thing in each
    that may be odd.

    Bytes that aren't UTF-8 stand in them as with Python's `surrogateescape`.
    """
    leads = [_whole(kind), Members()]
    values = ("null", "1", '"x"', "{}", "[1,\n2]")
    changes = [(key, value) for key in ('"new"', '"\\u006eew"', '"createdAt"') for value in values]
    objects = {
        path.rpartition(".")[0]: kind.fields for path in sorted(field.path for field in kind.fields)
    }
    for owner, fields in (
        *objects.items(),
        *((child.path, child.fields) for child in kind.children),
    ):
        names: dict[FieldType, list[str]] = {}
        for field in fields:
            if owner in (field.path.rpartition(".")[0], *(child.path for child in kind.children)):
                names.setdefault(field.type, []).append(json.dumps(field.path.rpartition(".")[2]))
        for type_, keys in names.items():
            for number, value in enumerate(
                dict.fromkeys((*PLAIN[type_], *ODD[type_], *CONTAINERS, *NO_JSON, "null"))
            ):
                leads.append(lead := _whole(kind))
                members = _owner(lead, owner)
                key = keys[number % len(keys)]
                members[:] = [(there, value if there == key else inner) for there, inner in members]
            for number, change in enumerate(
                (*changes, *((keys[0], value) for value in ("null", "1", '"x"', "{}")))
            ):
                leads.append(lead := _whole(kind))
                members = _owner(lead, owner)
                members.insert(len(members) if number % 2 else 0, change)
        leads.append(lead := _whole(kind))
        del _owner(lead, owner)[0]
        for value in (*CONTAINERS, "null", "5"):
            leads.append(lead := _whole(kind))
            if owner:
                _put(lead, owner, value)
    for number, lead in enumerate(leads):
        lead.insert(number % (len(lead) + 1), ('"id"', f'"lead-{number}"'))
    return [_json(lead, ("", "", " ", "\n\t")[number % 4]) for number, lead in enumerate(leads)]


def leads_with_odd_names_and_ids(kind: LeadKind) -> list[str]:
    """The same, with a member that has an odd name, in the lead or in an object, or with an odd id."""
    leads = [Members([*_whole(kind), ('"id"', id_)]) for id_ in IDS]
    for number, name in enumerate(ODD_NAMES):
        lead = Members([*_whole(kind), ('"id"', f'"lead-{number}"')])
        _object(lead, "contact" if number % 2 else "").append((json.dumps(name), "1.50"))
        leads.append(lead)
    return [_json(lead, "") for lead in leads]


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


def _owner(lead: Members, path: str) -> Members:
    """The object at the path, or the last element of the list there."""
    parent, _, name = path.rpartition(".")
    inner = dict(_object(lead, parent)).get(json.dumps(name))
    return (
        inner[-1]
        if isinstance(inner, list) and not isinstance(inner, Members)
        else _object(lead, path)
    )


# --- where it went --------------------------------------------------------------------------------

# What `_problems` says of a lead as a whole. Of one that isn't JSON nothing else has to be found,
# of any other it does.
NOT_JSON = {"not valid JSON"}


@dataclass(frozen=True)
class Received:
    """A lead as sent, and the id by which it should be known: its own, or the hash of its bytes
    where it has none.

    Of a lead that isn't JSON, `content` is None, and so is `lead_id`: to find one in it takes more
    than a JSON parser.
    """

    text: str
    content: Any
    is_json: bool
    lead_id: str | None

    @classmethod
    def of(cls, sent: str) -> "Received":
        data = sent.encode(errors="surrogateescape")
        try:
            text = data.decode()
        except UnicodeDecodeError:
            text = data.decode("latin-1")
        try:
            content = parsed(text)
            json.dumps(content, ensure_ascii=False).encode()
        except ValueError:  # half of a surrogate pair is one as well
            return cls(text, None, is_json=False, lead_id=None)
        ids = (
            [value for key, value in content if key == "id"] if isinstance(content, Members) else []
        )
        has_id = bool(ids) and isinstance(ids[-1], str) and bool(ids[-1].strip())
        lead_id = str(ids[-1]) if has_id else f"sha256:{hashlib.sha256(data).hexdigest()}"
        return cls(text, content, is_json=True, lead_id=lead_id)


def parsed(text: str) -> Any:
    """JSON with nothing lost: objects as Members, numbers as Number.

    Raises ValueError for what the grammar forbids.
    """

    def refuse(constant: str) -> None:
        raise ValueError(constant)

    return json.loads(
        text, object_pairs_hook=Members, parse_int=Number, parse_float=Number, parse_constant=refuse
    )


def lost(
    kind: LeadKind, lead: Received, row: Row, children: Mapping[str, Sequence[Row]]
) -> Iterator[str]:
    """What can't be found again of a lead, in words.

    `children` are its rows in each child table, by position.
    """
    problems = set(row["_problems"])
    if not lead.is_json:
        if not problems & NOT_JSON:
            yield "nothing says that it isn't JSON"
        return
    if "not valid JSON" in problems:
        yield "it is JSON, and _problems says that it isn't"
    if not isinstance(lead.content, Members):
        if "not an object" not in problems:
            yield "nothing says that it isn't an object"
        return
    known: _Known = {
        "id": None,
        **{field.path: field for field in kind.fields},
        **{child.path: child for child in kind.children},
    }
    yield from _lost_members(lead.content, "", row, known, children)


# What is declared, by its path. A lead's id is None: where it went is in Received.lead_id.
_Known = Mapping[str, Field | ChildTable | None]


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
                if not isinstance(value, str) and not _WITHOUT_ID & set(row["_problems"]):
                    yield "nothing says that it has no id"
            case _ if "." not in key and any(
                declared.startswith(f"{place}.") for declared in known
            ):
                yield from _lost_object(place, value, row, known, children)
            case _:
                yield from _lost_unknown([*filter(None, path.split(".")), key], value, row)


def _lost_object(
    place: str, value: Any, row: Row, known: _Known, children: Mapping[str, Sequence[Row]]
) -> Iterator[str]:
    if isinstance(value, Members):
        yield from _lost_members(value, place, row, known, children)
    elif value is not None:
        yield f"{place} is no object, and nothing says so"


def _lost_unknown(steps: Sequence[str], value: Any, row: Row) -> Iterator[str]:
    if "_extra" not in row["_problems"] and not _is_in_extra(steps, value, row["_extra"]):
        yield f"{steps} is unknown, {value!r}, and not in {row['_extra']!r}"


_NEW: Final = object()
# One thing odd about a lead as a whole is said, not two.
_WITHOUT_ID: Final = {"no id", *NOT_JSON}


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
            yield from (
                f"{child.path}: {said}" for said in _lost_members(element, "", row, fields, {})
            )
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
    if value is None or typed is None:
        return value is typed or (
            field.type is FieldType.MOMENT and str(value).startswith("0001-01-01T00:00")
        )
    if isinstance(value, list):
        return False
    text = str(value)
    match field.type:
        case FieldType.TEXT:
            if isinstance(value, Number) and text == "-0":
                return bool(typed == "0")
            return bool(typed == (text.lower() if isinstance(value, bool) else text))
        case FieldType.BOOLEAN:
            return bool(
                typed == {"True": True, "true": True, "False": False, "false": False}.get(text)
            )
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
