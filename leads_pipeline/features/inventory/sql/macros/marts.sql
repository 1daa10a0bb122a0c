-- What these marts use, and analysts as well.

create or replace macro postcode_of(v) as nullif(regexp_replace(upper(v), '[^A-Z0-9]', '', 'g'), '');

comment on macro postcode_of is 'A postcode in capitals and without blanks, to compare it';
