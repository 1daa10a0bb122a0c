"""Turns a lead's exact text into one nested, typed row.

Belongs here: decoding, strict casts, `_problems` and `_extra`, all from the contract's
declarations. Doesn't: tables and SQL (flatten.py).

One typed decode reads a lead that is as declared. If it refuses, the same decoders read smaller and
smaller pieces, and only a refused value gets a lenient cast of its exact text. So both ways agree
by construction.
"""

import hashlib
import json
import re
from abc import ABCMeta
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from datetime import datetime
from decimal import Decimal
from functools import cache
from itertools import accumulate, chain, islice
from operator import attrgetter
from typing import Annotated, Any, ClassVar, Final

import msgspec
import pyarrow as pa

from leads_pipeline.domain.contract import (
    UNKNOWN_MOMENT,
    ChildTable,
    Field,
    FieldType,
    LeadKind,
    declared_members,
)
from leads_pipeline.raw.rows import corrected

PROBLEMS: Final = "_problems"
EXTRA: Final = "_extra"

# The words of `_problems` for a lead as a whole.
NOT_AN_OBJECT: Final = "not an object"
NOT_JSON: Final = "not valid JSON"
NO_ID: Final = "no id"

# Leads that are structs at once: ten times as many leave the processor's cache (measured).
_AT_ONCE: Final = 1_000

# Deeper JSON isn't read. Python's own limit depends on the caller's stack.
_MAX_NESTING: Final = 600

_ANYTHING: Final = msgspec.json.Decoder(msgspec.Raw)
_MEMBERS: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ELEMENTS: Final = msgspec.json.Decoder(list[msgspec.Raw])
_STRING: Final = msgspec.json.Decoder(str)
_ENCODER: Final = msgspec.json.Encoder()
_STRINGS: Final = re.compile(r'"(?:[^"\\]|\\.)*+"', re.DOTALL)


def read_leads(
    kind: LeadKind, leads: Iterable[tuple[str, str, Sequence[str]]]
) -> "pa.ChunkedArray[Any]":
    """Return the leads as a nested, typed column.

    `leads` are ids, texts and corrections: JSON merge patches (RFC 7396) for the text, oldest
    first. Whatever a text holds, it becomes a row. DuckDB refuses a slice of a nested column, so
    other columns beside it may have no chunks.
    """
    lead = _declared_lead(kind)
    chunks = []
    structs = (lead.read_lead(*one) for one in leads)
    while some := list(islice(structs, _AT_ONCE)):
        chunks.append(lead.column(some))
    return pa.chunked_array(chunks, lead.column([]).type)


# --- values: what the decoder can't read by itself, and what is read besides what is declared -----
# A ValueError means, from here on, that a column can't hold the value exactly.

# Marks for the decoder: for values of these types it calls `_amount` or `_moment`. An unknown
# moment is None.
_Amount: Any = ABCMeta("_Amount", (), {})
_Moment: Any = ABCMeta("_Moment", (), {})
_Amount.register(int)
_Amount.register(Decimal)
_Moment.register(datetime)
_Moment.register(type(None))

_PENNY: Final = Decimal("0.01")
_NUMBER: Final = re.compile(r"-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d{1,3})?", re.ASCII)
# RFC 3339, of the years 1000 to 2999. The seconds may be missing, as in the service's Timestamp.
_MOMENT: Final = re.compile(
    r"[12]\d{3}-\d\d-\d\d[Tt]([01]\d|2[0-3]):[0-5]\d(:[0-5]\d(\.\d+)?)?([Zz]|[+-]([01]\d|2[0-3]):?[0-5]\d)",
    re.ASCII,
)


def _boolean(text: str) -> bool:
    if text not in ("true", "false"):
        raise ValueError
    return text == "true"


def _decimal(text: object) -> Decimal:
    if type(text) is not str or not _NUMBER.fullmatch(text):
        raise ValueError
    return Decimal(text)


def _integer(text: str) -> int:
    number = _decimal(text)
    if not -(2**63) <= number < 2**63:
        raise ValueError

    whole = int(number)
    if number != whole:
        raise ValueError

    return whole


def _number(text: str) -> float:
    number = float(_decimal(text))
    if abs(number) == float("inf"):
        raise ValueError
    return number


def _amount(value: Any) -> int | Decimal:
    """Return an integer as it is, and a Decimal or the text of a number as pennies."""
    number: int | Decimal = value if type(value) in (int, Decimal) else _decimal(value)
    if not -(10**16) < number < 10**16:
        raise ValueError
    if isinstance(number, int):
        return number

    pennies = number.quantize(_PENNY)
    # A double that was written with all its digits, 0.1000000000000000055, is the amount that it
    # was made from.
    is_double = abs(number) < 10**12 and float(number) == float(pennies) != 0

    if number != pennies and not is_double:
        raise ValueError

    return pennies


def _moment(text: object) -> datetime | None:
    if type(text) is str and text.startswith(UNKNOWN_MOMENT):
        return None
    if type(text) is not str or not _MOMENT.fullmatch(text):
        raise ValueError
    return datetime.fromisoformat(text.upper())


# For each type: what the decoder reads, what casts the exact text of anything else, and the type of
# the column.
_TYPES: Final[dict[FieldType, tuple[Any, Callable[[str], Any], pa.DataType]]] = {
    FieldType.TEXT: (str | int | None, str, pa.string()),
    FieldType.BOOLEAN: (bool | None, _boolean, pa.bool_()),
    FieldType.INTEGER: (
        Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)] | None,
        _integer,
        pa.int64(),
    ),
    FieldType.NUMBER: (float | None, _number, pa.float64()),
    FieldType.AMOUNT: (_Amount | None, _amount, pa.decimal128(18, 2)),
    FieldType.MOMENT: (_Moment | None, _moment, pa.timestamp("us", tz="UTC")),
}


def _decoder(annotation: Any) -> Callable[[Any], Any]:
    def hook(wanted: type, value: Any) -> Any:
        return _amount(value) if wanted is _Amount else _moment(value)

    # Decimal itself would raise other errors for exponents that it can't have.
    return msgspec.json.Decoder(annotation, dec_hook=hook, float_hook=_decimal).decode


# --- declarations, as a tree: each node reads text, and makes a column of what it read ------------

# A value, and its members that the contract doesn't know, as received.
_Read = tuple[Any, dict[str, Any] | None]


class _Leaf:
    """A field."""

    def __init__(self, type_: FieldType) -> None:
        self.annotation, self._cast, self._arrow = _TYPES[type_]
        self._decode = _decoder(self.annotation)

    def read(self, raw: msgspec.Raw, path: str, problems: list[str]) -> _Read:  # noqa: ARG002 - as the other nodes
        with suppress(ValueError):
            return self._decode(raw), None
        text = bytes(raw).decode()
        if text.startswith(("{", "[")):
            raise ValueError
        return self._cast(_STRING.decode(text) if text.startswith('"') else text), None

    def column(self, values: list[Any]) -> "pa.Array[Any]":
        try:
            return pa.array(values, self._arrow)
        except pa.ArrowTypeError:  # integers among texts
            return pa.array(
                [str(value) if type(value) is int else value for value in values], self._arrow
            )


class _Struct(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    """A declared object. A row with an oddity is of a subclass that names it."""

    _problems: ClassVar[Sequence[str]] = ()
    _extra: ClassVar[str | None] = None


class _Object:
    """An object, by its members."""

    def __init__(self, name: str, tree: dict[str, Any], ignore: str | None = None) -> None:
        self._members = {key: _node(f"{name}_{key}", inner) for key, inner in tree.items()}
        fields: list[Any] = [(key, node.annotation, None) for key, node in self._members.items()]
        fields += [(ignore, msgspec.Raw, None)] if ignore else []
        self.struct: Any = msgspec.defstruct(name, fields, bases=(_Struct,), gc=False)
        self.annotation: Any = self.struct | None
        self._nothing = self.struct()
        self._ignored = ignore
        self._decode = _decoder(self.annotation)

    def read(self, raw: Any, path: str, problems: list[str]) -> _Read:
        with suppress(ValueError):
            return self._decode(raw), None

        values = dict[str, Any]()
        extra = dict[str, Any]()
        for name, value in _MEMBERS.decode(raw).items():
            if node := self._members.get(name):
                try:
                    values[name], inner = node.read(value, f"{path}{name}.", problems)
                    if inner:
                        extra[name] = inner
                except ValueError:
                    problems.append(path + name)
            elif name != self._ignored:
                extra[name] = value

        return self.struct(**values), extra

    def column(self, objects: Iterable[Any]) -> "pa.Array[Any]":
        columns = self._columns([found or self._nothing for found in objects])
        return pa.StructArray.from_arrays(list(columns.values()), list(columns))

    def _columns(self, rows: list[Any]) -> dict[str, "pa.Array[Any]"]:
        return {
            name: node.column(list(map(attrgetter(name), rows)))
            for name, node in self._members.items()
        }


class _Row(_Object):
    """An object that becomes a row of a table: a lead, or an element of one of its lists."""

    def __init__(
        self,
        of: LeadKind | ChildTable,
        children: Sequence[ChildTable] = (),
        ignore: str | None = None,
    ) -> None:
        super().__init__(of.name, declared_members(of.fields, children), ignore)
        oddities = [(PROBLEMS, list[str]), (EXTRA, str | None)]
        self._odd_struct = msgspec.defstruct(
            f"odd_{of.name}", oddities, bases=(self.struct,), kw_only=True, gc=False
        )
        # Problems stand in the order of the declarations: fields, objects, lists.
        fields = [field.path for field in of.fields]
        lists = [child.path for child in children]
        objects = [
            path[: dot.start()] for path in (*fields, *lists) for dot in re.finditer(r"\.", path)
        ]
        self._declared_paths = [*fields, *objects, *lists]

    def read_lead(self, lead_id: str, payload: str, corrections: Sequence[str]) -> Any:
        """Return the struct of a lead's text."""
        if not corrections and not lead_id.startswith("sha256:"):
            with suppress(ValueError, RecursionError):
                if (lead := self._decode(payload)) is not None:
                    return lead

        # An id that is missing is replaced by the hash of what was received. That may have been ISO
        # 8859-1.
        received = (payload.encode(), payload.encode("latin-1", errors="replace"))
        is_nameless = any(
            lead_id == f"sha256:{hashlib.sha256(one).hexdigest()}" for one in received
        )
        text, not_json = _json_of(payload)

        for patch in corrections:
            with suppress(ValueError):  # it is no object, so there is nothing to correct
                text = corrected(text, patch)

        return self.read_row(text, not_json, NO_ID if is_nameless else None)

    def read_row(
        self, raw: Any, oddity: str | None = None, oddity_of_object: str | None = None
    ) -> Any:
        """Return the struct of any JSON, with its oddities."""
        problems = list[str]()
        row = None
        extra = None
        with suppress(ValueError):
            row, extra = self.read(raw, "", problems)

        problems.sort(key=self._declared_paths.index)
        if oddity := oddity or (NOT_AN_OBJECT if row is None else oddity_of_object):
            problems.insert(0, oddity)

        values = msgspec.structs.asdict(row) if row else {}
        oddities = {PROBLEMS: problems, EXTRA: _ENCODER.encode(extra).decode() if extra else None}
        return self._odd_struct(**values, **oddities)

    def _columns(self, rows: list[Any]) -> dict[str, "pa.Array[Any]"]:
        return super()._columns(rows) | {
            PROBLEMS: pa.array(
                map(attrgetter(PROBLEMS), rows), pa.list_(pa.string()), size=len(rows)
            ),
            EXTRA: pa.array(map(attrgetter(EXTRA), rows), pa.string(), size=len(rows)),
        }


class _List:
    """A list of objects, which becomes a child table."""

    def __init__(self, child: ChildTable) -> None:
        self._element = _Row(child)
        self.annotation: Any = list[self._element.struct] | None  # type: ignore[name-defined]
        self._decode = _decoder(self.annotation)

    def read(self, raw: msgspec.Raw, path: str, problems: list[str]) -> _Read:  # noqa: ARG002 - rows have their own
        with suppress(ValueError):
            return self._decode(raw), None
        return [self._element.read_row(element) for element in _ELEMENTS.decode(raw)], None

    def column(self, lists: list[Any]) -> "pa.Array[Any]":
        offsets = [0, *accumulate(len(found or ()) for found in lists)]
        elements = self._element.column(chain.from_iterable(filter(None, lists)))
        return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), elements)


def _node(name: str, what: Any) -> _Leaf | _Object | _List:
    if isinstance(what, Field):
        return _Leaf(what.type)
    return _List(what) if isinstance(what, ChildTable) else _Object(name, what)


@cache
def _declared_lead(kind: LeadKind) -> _Row:
    """Return the declared lead. Its own `id` may be anything, because the raw row has it."""
    return _Row(kind, kind.children, ignore="id")


def _json_of(payload: str) -> tuple[str | bytes, str | None]:
    """Return the text if it is JSON, else the readable part or null, and the words for that."""
    if payload.count("[") + payload.count("{") > _MAX_NESTING:
        steps = (
            1 if bracket in "[{" else -1
            for bracket in re.findall(r"[\[\]{}]", _STRINGS.sub("", payload))
        )
        if max(accumulate(steps)) > _MAX_NESTING:
            return "null", NOT_JSON

    with suppress(ValueError, RecursionError):
        _ANYTHING.decode(payload)
        return payload, None

    # NaN, half an emoji, a line break: as leniently as Python can.
    with suppress(ValueError, RecursionError):
        value = json.loads(
            payload, strict=False, parse_float=str, parse_int=str, parse_constant=str
        )
        return json.dumps(value, ensure_ascii=False).encode(errors="replace"), NOT_JSON

    return "null", NOT_JSON
