-- Figures of mart_listing_demand: one row, a column a figure.
select count(*) as listings, max(leads) as leads_of_most_wanted_listing from mart_listing_demand
