-- What passes of a value into a copy for wide use: words that the contract knows, a step of a number, half of a
-- postcode, a hash. No text passes as it was received, as each may hold a name.
create temp macro words_of(v) as case
    when list_contains(getvariable('members'), trim(v)) then readable(v)
    when trim(v) <> '' then '…'
    else 'unknown'
end;

create temp macro step_of(v, width, most) as case when v >= 0 then least(floor(v / width) * width, most)::bigint end;

create temp macro price_step_of(v, market) as
    if(market = 'lettings', step_of(v, 500, 20000), step_of(v, 100000, 5000000));

create temp macro outward_of(v) as
    nullif(regexp_extract(postcode_of(v), '^([A-Z]{1,2}[0-9][A-Z0-9]?)([0-9][A-Z]{2})?$', 1), '');

-- What is hashed says of what it is, so that no person's hash is a listing's.
create temp macro hash_of(what, v) as keyed_hash(what || ' ' || v);
