-- Which leads are one person's. They live as long as a connection, as the key does. Simpler than the keys
-- (features/privacy/contact_keys.py), which decide erasures: a tag, an extension, or 0033 for +33 makes another person here.
create or replace temp macro email_of(v) as nullif(lower(trim(v)), '');

-- 07700 900123, +44 7700 900123 and 0044 (0)7700 900123 are one number.
create or replace temp macro phone_of(v) as
    nullif(regexp_replace(regexp_replace(v, '[^0-9]', '', 'g'), '^(00)?440?|^0', ''), '');

-- HMAC-SHA256 (RFC 2104), its two padded keys as variables: bound, so that neither is in a statement or in the file.
-- 128 of its bits are a UUID, which DuckDB stores and groups by like a number. As DuckDB can't call it for a part of
-- the rows, NULL goes through it.
create or replace temp macro keyed_hash(v) as
    sha256(
        getvariable('person_outer_key') || unhex(sha256(getvariable('person_inner_key') || encode(v)))
    )[:32]::uuid;

-- Whose address was cut out is known by the hash that stands in its place.
create or replace temp macro removed_person_of(v) as
    try_cast(regexp_extract(v, '^([0-9a-f-]{36})@removed[.]invalid$', 1) as uuid);

create or replace temp macro person_of(email, phone) as
    coalesce(removed_person_of(email), keyed_hash(coalesce(email_of(email), phone_of(phone))));
