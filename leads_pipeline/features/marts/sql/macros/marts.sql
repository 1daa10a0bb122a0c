-- What these marts use, and analysts as well.

-- A whole postcode or its first half: YO1 of `YO1 7HH` and of `YO1`. Anything else may be somebody's words.
-- It calls no other macro: in an attached file it wouldn't find it.
create or replace macro district_of(v) as
    nullif(regexp_extract(regexp_replace(upper(v), '[^A-Z0-9]', '', 'g'), '^([A-Z]{1,2}[0-9][0-9A-Z]??)([0-9][A-Z]{2})?$', 1), '');

create or replace macro monthly_rent_of(rent, frequency) as case
    when frequency = 'per month' then rent
    when frequency = 'per week' then try_cast(rent::decimal(38, 2) * 52 / 12 as decimal(18, 2))
end;

-- Bands of prices are 100,000 wide, those of monthly rents 500. Prices can be odd: without a last band there are
-- hundreds of bands of one listing.
create or replace macro band_from(amount, is_rent) as case
    when amount >= 0 and is_rent then least(floor(amount / 500)::bigint * 500, 20000)
    when amount >= 0 then least(floor(amount / 100000)::bigint * 100000, 5000000)
end;

create or replace macro band_of(lowest, is_rent) as case
    when lowest = case when is_rent then 20000 else 5000000 end then format('{:,} or more', lowest)
    else coalesce(format('{:,} to {:,}', lowest, lowest + case when is_rent then 499 else 99999 end), 'unknown')
end;

comment on macro district_of is 'First half of a postcode; NULL if it isn''t a British one';
comment on macro monthly_rent_of is 'The rent of a month, from a rent and its period in words: 52/12 of a rent per week; NULL for another period';
comment on macro band_from is 'Lower end of the band that a price, or a rent of a month, is in';
comment on macro band_of is 'Words for the band with that lower end; unknown if it is NULL';
