"""Python values as Arrow arrays and back, of the few types that are needed, without pandas.

pyarrow.array imports pandas to ask whether it was given a Series, and so does a moment's value: a third of a second of
each process that lands or flattens anything. pyarrow.compute, which `take` and `cast` import, takes a twentieth.
"""

from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from itertools import accumulate
from typing import Any, Final

import pyarrow as pa

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST_DAY: Final = date(1970, 1, 1)

_DAY: Final = pa.date32()
_MOMENT: Final = pa.timestamp("us", tz="UTC")
_TEXT: Final = pa.string()
_TEXTS: Final = pa.list_(_TEXT)

# An array holds 2 GiB, and a character takes 4 bytes at the most; the builder drops what is beyond without a word.
MOST_CHARACTERS: Final = 2**29

# Numbers of 32 and of 64 bits, as the array module calls them.
_INT32, _INT64 = "i", "q"
_WIDTHS: Final = {pa.int32(): _INT32, pa.int64(): _INT64, _DAY: _INT32, _MOMENT: _INT64}


def array_of(values: Sequence[Any], type_: pa.DataType) -> "pa.Array[Any]":
    """The values as an array of that type, as pyarrow.array makes it: None is NULL.

    Of numbers, days, moments with a zone, texts and lists of texts. Raises OverflowError, TypeError and ValueError for
    what doesn't fit.
    """
    if type_ == _TEXT and sum(map(len, filter(None, values))) > MOST_CHARACTERS:
        return pa.array(values, _TEXT)  # several arrays
    if type_ != _TEXTS and len(values) > 1 and values[0] is not None and values.count(values[0]) == len(values):
        return _repeated(values[0], len(values), type_)  # as in most columns of a raw file
    if type_ == _TEXT:
        return _texts(values)
    are_there = [value is not None for value in values]
    validity = None if all(are_there) else mask_of(are_there).buffers()[1]
    if type_ == _TEXTS:
        items = array_of([item for value in values if value for item in value], _TEXT)
        ends = _numbers(_INT32, accumulate((len(value or ()) for value in values), initial=0))
        return pa.Array.from_buffers(type_, len(values), [validity, ends], children=[items])
    as_number = _AS_NUMBERS.get(type_)
    if as_number:
        values = [value and as_number(value) for value in values]
    numbers = _numbers(_WIDTHS[type_], values if validity is None else (value or 0 for value in values))
    return pa.Array.from_buffers(type_, len(values), [validity, numbers])


def mask_of(values: Sequence[bool]) -> "pa.Array[Any]":
    """What filters rows."""
    bits = int("".join("1" if value else "0" for value in reversed(values)) or "0", base=2)
    mask = pa.py_buffer(bits.to_bytes((len(values) + 7) // 8, "little"))
    return pa.Array.from_buffers(pa.bool_(), len(values), [None, mask])


def rows_in(table: pa.Table) -> list[dict[str, Any]]:
    """The rows as Table.to_pylist gives them. Moments are in UTC."""
    columns = {name: _values(table[name]) for name in table.column_names}
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _values(column: "pa.ChunkedArray[Any]") -> list[Any]:
    if column.type != _MOMENT:
        return column.to_pylist()
    numbers = [number for chunk in column.chunks for number in chunk.view(pa.int64()).to_pylist()]
    return [None if number is None else _EPOCH + timedelta(microseconds=number) for number in numbers]


def _texts(values: Sequence[str | bytes | None]) -> "pa.Array[Any]":
    texts = pa.lib.StringBuilder()
    texts.append_values(values)
    return texts.finish()


def _repeated(value: Any, count: int, type_: pa.DataType) -> "pa.Array[Any]":
    if type_ != _TEXT:
        as_number = _AS_NUMBERS.get(type_)
        number = array(_WIDTHS[type_], [as_number(value) if as_number else value])
        return pa.Array.from_buffers(type_, count, [None, pa.py_buffer(number.tobytes() * count)])
    text = value if isinstance(value, bytes) else value.encode()
    ends = range(0, len(text) * count + 1, len(text)) if text else (0,) * (count + 1)
    return pa.Array.from_buffers(type_, count, [None, _numbers(_INT32, ends), pa.py_buffer(text * count)])


def _days(day: date) -> int:
    return (day - _FIRST_DAY).days


@lru_cache
def microseconds(moment: datetime) -> int:
    """Since 1970, as Arrow counts them."""
    return (moment - _EPOCH) // timedelta(microseconds=1)


_AS_NUMBERS: Final[Mapping[pa.DataType, Callable[[Any], int]]] = {_DAY: _days, _MOMENT: microseconds}


def _numbers(width: str, values: Iterable[int]) -> pa.Buffer:
    return pa.py_buffer(array(width, values).tobytes())
