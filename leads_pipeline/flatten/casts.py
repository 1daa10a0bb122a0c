"""Strict casts, as SQL macros: which texts are a boolean, a number, an amount, a moment."""

from typing import Final

# try_cast alone reads '5.7' as the integer 6, 'yes' as true, '0x1F' as 31 and '1_000' as 1000, so the form comes
# first. A number or a boolean that was sent as text in the same form counts: nothing is lost by it. Exponents count
# where the value is exact (Java writes prices from ten million on as 1.25E7).
_NUMBER_FORM: Final = r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?"
# A number of so few digits is one double; what is too small for any is none.
_EXACT_AS_DOUBLE: Final = (
    f"regexp_full_match(v, '{_NUMBER_FORM}') and length(v) <= 18"
    " and (try_cast(v as double) <> 0 or not regexp_matches(v, '[1-9].*[eE]|[1-9][^eE]*$'))"
)
_INTEGER_FORM: Final = r"-?(0|[1-9][0-9]*)(\.0+)?"
_AMOUNT_FORM: Final = r"-?(0|[1-9][0-9]*)(\.[0-9]{1,2}0*)?"
# RFC 3339 without its leap to other calendars: years 1000 to 2999; the seconds may be missing (openapi.yaml,
# Timestamp). `:60` is the leap second, read as the second after.
_MOMENT_FORM: Final = (
    r"[12][0-9]{3}-[0-9]{2}-[0-9]{2}[Tt]([01][0-9]|2[0-3]):[0-5][0-9](:([0-5][0-9]|60)(\.[0-9]+)?)?"
    r"([Zz]|[+-]([01][0-9]|2[0-3]):?[0-5][0-9])"
)

# `written` is the number as it was written: DuckDB reads one with a fraction as a double, which rewrites 250000.10 as
# 250000.1 and keeps 15 digits. It is asked for only where that matters, as fetching it parses the lead again.
MACROS: Final = (
    """
    as_text(v, json_type, written) as case
        when (starts_with(v, '{') or starts_with(v, '[')) and json_type in ('OBJECT', 'ARRAY') then null
        when v between '-' and ':' and (contains(v, '.') or contains(v, 'e')) and json_type = 'DOUBLE' then written
        when v = '0' and json_type <> 'VARCHAR' then written
        else v
    end""",
    "as_boolean(v) as case v when 'true' then true when 'false' then false end",
    f"""
    as_integer(v) as case
        when regexp_full_match(v, '{_INTEGER_FORM}') then try_cast(split_part(v, '.', 1) as bigint)
        when {_EXACT_AS_DOUBLE} and abs(try_cast(v as double)) < 9007199254740992
            and trunc(try_cast(v as double)) = try_cast(v as double) then try_cast(try_cast(v as double) as bigint)
    end""",
    "integer_text(v, written) as case when contains(v, '.') or contains(v, 'e') then coalesce(written, v) else v end",
    f"""
    as_number(v) as case
        when regexp_full_match(v, '{_NUMBER_FORM}') and isfinite(try_cast(v as double)) then try_cast(v as double)
    end""",
    f"""
    as_amount(v) as case
        when regexp_full_match(v, '{_AMOUNT_FORM}') then try_cast(v as decimal(18, 2))
        when {_EXACT_AS_DOUBLE}
            and try_cast(v as decimal(18, 2))::double = try_cast(v as double) then try_cast(v as decimal(18, 2))
    end""",
    # Prices often come with a fraction. One of up to 15 digits is read as the double nearest to it, which has them all.
    """
    amount_text(v, written) as case
        when length(v) > 15 or contains(v, 'e') or v in ('0.0', '-0.0') then coalesce(written, v)
        else v
    end""",
    f"""
    as_moment(v) as case
        when not regexp_full_match(v, '{_MOMENT_FORM}') then null
        when v[17:19] = ':60' then try_cast(upper(v[:17] || '59' || v[20:]) as timestamptz) + interval 1 second
        else try_cast(upper(v) as timestamptz)
    end""",
    # Of many keys Python tells it in a third of the time (measured).
    """
    may_repeat(keys) as case
        when len(keys) < 2 then false
        when len(keys) < 50 then list_unique(keys) < len(keys)
        else a_part_repeats(array_to_string(keys, '"'))
    end""",
    """
    repeated(keys) as list_sort(list_transform(
        list_filter(map_entries(list_aggregate(keys, 'histogram')), lambda entry: entry.value > 1),
        lambda entry: entry.key
    ))""",
)
