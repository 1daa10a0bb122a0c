-- What marts use. They stay in the file, for analysts to use as well. DuckDB 1.1.3 has to read them, so there is no `if`.
create or replace macro words_of(v) as
    regexp_replace(lower(replace(regexp_replace(v, {prefix}, ''), '_', ' ')), '^(unspecified)?$', 'unknown');

-- A member in the portal's form shows at once. Any other value may be a person's words until three people have sent it.
-- pipeline.words has the values of nearly all leads. To match each with the pattern would take four times as long.
create or replace macro readable(v) as
    coalesce(
        (select words from pipeline.words where value = trim(v)),
        case
            when coalesce(trim(v), '') = '' then 'unknown'
            when regexp_full_match(trim(v), {member}) then words_of(trim(v))
            else '…'
        end
    );

create or replace macro market_of(enquiry_type, intent) as case
    when enquiry_type = 'ENQUIRY_TYPE_SALES' then 'sales'
    when enquiry_type = 'ENQUIRY_TYPE_LETTINGS' then 'lettings'
    when ends_with(intent, '_BUY') or ends_with(intent, '_SELL') then 'sales'
    when ends_with(intent, '_RENT') or ends_with(intent, '_LET') then 'lettings'
    else 'unknown'
end;

create or replace macro branch_of(v) as coalesce((select name from branches where scope = v), v);

create or replace macro postcode_of(v) as nullif(regexp_replace(upper(v), '[^A-Z0-9]', '', 'g'), '');

create or replace macro local_time(v) as timezone({zone}, v);

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

-- What an analyst reads: select function_name, parameters, comment from duckdb_functions() where comment is not null.
comment on macro words_of is 'The words of an enumerated value: end terrace of END_TERRACE. Shows anything that it is given; readable hides what may be a person''s words';
comment on macro readable is 'The words of an enumerated value, as marts show them: unknown if there is none, … if it may be a person''s words';
comment on macro market_of is 'sales or lettings, from the columns enquiry_type and intent of a lead; unknown if neither says';
comment on macro branch_of is 'Name of the branch with that scope; the scope if it has no name';
comment on macro postcode_of is 'A postcode in capitals and without blanks, to compare it';
comment on macro local_time is 'A moment on the clocks of LEADS_TIMEZONE';
comment on macro district_of is 'First half of a postcode; NULL if it isn''t a British one';
comment on macro monthly_rent_of is 'The rent of a month, from a rent and its period in words: 52/12 of a rent per week; NULL for another period';
comment on macro band_from is 'Lower end of the band that a price, or a rent of a month, is in';
comment on macro band_of is 'Words for the band with that lower end; unknown if it is NULL';
