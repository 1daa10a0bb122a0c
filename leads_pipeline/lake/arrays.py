"""Python values as Arrow arrays and back, of the few types that are needed, without pandas.

pyarrow imports pandas to ask whether it was given a Series, and again for a moment's value: a third of a second of each
process that lands or flattens anything.
"""

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final

import numpy as np
import pyarrow as pa

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

_MOMENT: Final = pa.timestamp("us", tz="UTC")

# What a type's values are in memory, and what makes them of Python's.
_FIXED: Final[dict[pa.DataType, tuple[Any, Callable[[Any], int]]]] = {
    pa.int32(): (np.int32, int),
    pa.int64(): (np.int64, int),
    pa.date32(): (np.int32, lambda day: (day - date(1970, 1, 1)).days),
    _MOMENT: (np.int64, lambda moment: (moment - _EPOCH) // timedelta(microseconds=1)),
}


def array_of(values: Sequence[Any], type_: pa.DataType) -> "pa.Array[Any]":
    """The values as an array of that type, as pyarrow.array makes it: None is NULL.

    Of numbers, days, moments with a zone, texts and lists of texts. Raises OverflowError and pyarrow.ArrowInvalid for
    what doesn't fit.
    """
    are_there = [value is not None for value in values]
    if not any(are_there):
        return pa.nulls(len(values), type_)  # type: ignore[call-overload, no-any-return]  # the stubs know single types
    validity = None if all(are_there) else _bits(are_there)
    if type_ in _FIXED:
        dtype, convert = _FIXED[type_]
        numbers = np.array([0 if value is None else convert(value) for value in values], dtype)
        return pa.Array.from_buffers(type_, len(values), [validity, pa.py_buffer(numbers.tobytes())])
    if type_ == pa.list_(pa.string()):
        items = array_of([item for value in values if value for item in value], pa.string())
        offsets = _offsets(len(value or ()) for value in values).astype(np.int32).tobytes()
        return pa.Array.from_buffers(type_, len(values), [validity, pa.py_buffer(offsets)], children=[items])
    texts = [(value or "").encode() if isinstance(value, str | None) else value for value in values]
    buffers = [validity, pa.py_buffer(_offsets(map(len, texts)).tobytes()), pa.py_buffer(b"".join(texts))]
    return pa.Array.from_buffers(pa.large_string(), len(values), buffers).cast(type_)


def mask_of(values: Iterable[bool]) -> "pa.Array[Any]":
    """What filters rows."""
    mask = list(values)
    return pa.Array.from_buffers(pa.bool_(), len(mask), [None, _bits(mask)])


def rows_in(table: pa.Table) -> list[dict[str, Any]]:
    """The rows as Table.to_pylist gives them. Moments are in UTC."""
    columns = {name: _values(table[name]) for name in table.column_names}
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _values(column: "pa.ChunkedArray[Any]") -> list[Any]:
    if column.type != _MOMENT:
        return column.to_pylist()
    numbers = column.cast(pa.int64()).to_pylist()
    return [None if number is None else _EPOCH + timedelta(microseconds=number) for number in numbers]


def _bits(values: Sequence[bool]) -> pa.Buffer:
    return pa.py_buffer(np.packbits(np.array(values, np.bool_), bitorder="little").tobytes())


def _offsets(lengths: Iterable[int]) -> Any:
    return np.cumsum([0, *lengths], dtype=np.int64)
