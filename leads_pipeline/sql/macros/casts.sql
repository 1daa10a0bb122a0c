-- Strict casts: which texts are a boolean, a number, an amount, a moment.
--
-- try_cast alone reads '5.7' as the integer 6, 'yes' as true, '0x1F' as 31 and '1_000' as 1000, so the form comes first.
-- A number or a boolean that was sent as text in the same form counts: nothing is lost by it. `written` is the number as
-- it was written: DuckDB reads one with a fraction as a double, which rewrites 250000.10 as 250000.1 and keeps 15 digits.
-- It is asked for only where that matters, as fetching it parses the lead again.

create temp macro as_text(v, json_type, written) as case
    when (starts_with(v, '{') or starts_with(v, '[')) and json_type in ('OBJECT', 'ARRAY') then null
    when v between '-' and ':' and (contains(v, '.') or contains(v, 'e')) and json_type = 'DOUBLE' then written
    when v = '0' and json_type <> 'VARCHAR' then written
    else v
end;

create temp macro as_boolean(v) as case v when 'true' then true when 'false' then false end;

create temp macro has_number_form(v) as regexp_full_match(v, '-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?');

-- Exponents count where the value is exact (Java writes prices from ten million on as 1.25E7). A number of so few digits
-- is one double; what is too small for any is none.
create temp macro is_exact_as_double(v) as
    has_number_form(v) and length(v) <= 18
    and (try_cast(v as double) <> 0 or not regexp_matches(v, '[1-9].*[eE]|[1-9][^eE]*$'));

create temp macro as_integer(v) as case
    when regexp_full_match(v, '-?(0|[1-9][0-9]*)(\.0+)?') then try_cast(split_part(v, '.', 1) as bigint)
    when is_exact_as_double(v) and abs(try_cast(v as double)) < 9007199254740992
        and trunc(try_cast(v as double)) = try_cast(v as double) then try_cast(try_cast(v as double) as bigint)
end;

create temp macro integer_text(v, written) as
    case when contains(v, '.') or contains(v, 'e') then coalesce(written, v) else v end;

create temp macro as_number(v) as case
    when has_number_form(v) and isfinite(try_cast(v as double)) then try_cast(v as double)
end;

create temp macro as_amount(v) as case
    when regexp_full_match(v, '-?(0|[1-9][0-9]*)(\.[0-9]{1,2}0*)?') then try_cast(v as decimal(18, 2))
    when is_exact_as_double(v)
        and try_cast(v as decimal(18, 2))::double = try_cast(v as double) then try_cast(v as decimal(18, 2))
end;

-- Prices often come with a fraction. One of up to 15 digits is read as the double nearest to it, which has them all.
create temp macro amount_text(v, written) as case
    when length(v) > 15 or contains(v, 'e') or v in ('0.0', '-0.0') then coalesce(written, v)
    else v
end;

-- RFC 3339 without its leap to other calendars: years 1000 to 2999; the seconds may be missing, as in the service's
-- Timestamp. `:60` is the leap second, read as the second after.
create temp macro as_moment(v) as case
    when not regexp_full_match(
        v,
        '[12][0-9]{3}-[0-9]{2}-[0-9]{2}[Tt]([01][0-9]|2[0-3]):[0-5][0-9](:([0-5][0-9]|60)(\.[0-9]+)?)?'
        || '([Zz]|[+-]([01][0-9]|2[0-3]):?[0-5][0-9])'
    ) then null
    when v[17:19] = ':60' then try_cast(upper(v[:17] || '59' || v[20:]) as timestamptz) + interval 1 second
    else try_cast(upper(v) as timestamptz)
end;

-- Of many keys Python tells it in a third of the time (measured).
create temp macro may_repeat(keys) as case
    when len(keys) < 2 then false
    when len(keys) < 50 then list_unique(keys) < len(keys)
    else a_part_repeats(array_to_string(keys, '"'))
end;

create temp macro repeated(keys) as list_sort(list_transform(
    list_filter(map_entries(list_aggregate(keys, 'histogram')), lambda entry: entry.value > 1),
    lambda entry: entry.key
));
