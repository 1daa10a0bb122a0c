-- applicant_leads, plain leads
with source as (
    select *, try(json_transform(coalesce(declared, body), '{"createdAt": "VARCHAR", "contact": {"firstName": "VARCHAR", "lastName": "VARCHAR", "phoneNumber": "VARCHAR", "email": "VARCHAR", "preferences": {"method": "VARCHAR", "time": "VARCHAR"}}, "intent": "VARCHAR", "enquiryType": "VARCHAR", "message": "VARCHAR", "propertyUse": "VARCHAR", "isOverseas": "BOOLEAN", "portalLeadId": "VARCHAR", "portalBranchId": "VARCHAR", "portalCompanyId": "VARCHAR", "portalGroupId": "VARCHAR", "sourceBranchId": "VARCHAR", "recipientEmail": "VARCHAR", "leadSource": "VARCHAR", "portalSource": "VARCHAR", "organiseViewing": "BOOLEAN", "requestPropertyDetails": "BOOLEAN", "consumerSituation": "VARCHAR", "consumerPostcode": "VARCHAR", "searchCriteria": {"location": {"alias": "VARCHAR", "area": "VARCHAR", "areaStreet": "VARCHAR", "country": "VARCHAR", "countryCode": "VARCHAR", "countyArea": "VARCHAR", "district": "VARCHAR", "incode": "VARCHAR", "outcode": "VARCHAR", "postTown": "VARCHAR", "postalArea": "VARCHAR", "region": "VARCHAR"}, "radius": "VARCHAR", "minimumBedrooms": "BIGINT", "maximumBedrooms": "BIGINT", "minimumPrice": "VARCHAR", "maximumPrice": "VARCHAR", "priceFrequency": "VARCHAR", "propertyType": "VARCHAR", "propertySubType": "VARCHAR"}, "listingDetails": {"id": "VARCHAR", "branchId": "VARCHAR", "bedrooms": "BIGINT", "bathrooms": "BIGINT", "receptions": "BIGINT", "lifeCycleStatus": "VARCHAR", "address": {"propertyNumberOrName": "VARCHAR", "streetName": "VARCHAR", "locality": "VARCHAR", "townOrCity": "VARCHAR", "postcode": "VARCHAR", "countryCode": "VARCHAR"}, "pricing": {"transactionType": "VARCHAR", "currencyCode": "VARCHAR", "price": "VARCHAR", "rentFrequency": "VARCHAR"}, "estimate": {"lowerRange": "BIGINT", "upperRange": "BIGINT", "value": "BIGINT", "confidence": "BIGINT", "confidenceBand": "VARCHAR"}, "propertyId": "VARCHAR", "uprn": "BIGINT", "propertyType": "VARCHAR", "sourceBranchId": "VARCHAR", "sourceId": "VARCHAR", "url": "VARCHAR", "images": [{"original": "VARCHAR", "cdnUrl": "VARCHAR", "filename": "VARCHAR"}]}, "viewingTimes": [{"earliest": "VARCHAR", "latest": "VARCHAR"}]}')) as item
    from plain_leads),
texts as (
    select *,
        item."contact"."firstName" as "value of contact_first_name",
        item."contact"."lastName" as "value of contact_last_name",
        item."contact"."phoneNumber" as "value of contact_phone_number",
        item."contact"."email" as "value of contact_email",
        item."contact"."preferences"."method" as "value of contact_preferences_method",
        item."contact"."preferences"."time" as "value of contact_preferences_time",
        item."intent" as "value of intent",
        item."enquiryType" as "value of enquiry_type",
        item."message" as "value of message",
        item."propertyUse" as "value of property_use",
        item."isOverseas" as "value of is_overseas",
        item."portalLeadId" as "value of portal_lead_id",
        item."portalBranchId" as "value of portal_branch_id",
        item."portalCompanyId" as "value of portal_company_id",
        item."portalGroupId" as "value of portal_group_id",
        item."sourceBranchId" as "value of source_branch_id",
        item."recipientEmail" as "value of recipient_email",
        item."leadSource" as "value of lead_source",
        item."portalSource" as "value of portal_source",
        item."organiseViewing" as "value of organise_viewing",
        item."requestPropertyDetails" as "value of request_property_details",
        item."consumerSituation" as "value of consumer_situation",
        item."consumerPostcode" as "value of consumer_postcode",
        item."searchCriteria"."location"."alias" as "value of search_criteria_location_alias",
        item."searchCriteria"."location"."area" as "value of search_criteria_location_area",
        item."searchCriteria"."location"."areaStreet" as "value of search_criteria_location_area_street",
        item."searchCriteria"."location"."country" as "value of search_criteria_location_country",
        item."searchCriteria"."location"."countryCode" as "value of search_criteria_location_country_code",
        item."searchCriteria"."location"."countyArea" as "value of search_criteria_location_county_area",
        item."searchCriteria"."location"."district" as "value of search_criteria_location_district",
        item."searchCriteria"."location"."incode" as "value of search_criteria_location_incode",
        item."searchCriteria"."location"."outcode" as "value of search_criteria_location_outcode",
        item."searchCriteria"."location"."postTown" as "value of search_criteria_location_post_town",
        item."searchCriteria"."location"."postalArea" as "value of search_criteria_location_postal_area",
        item."searchCriteria"."location"."region" as "value of search_criteria_location_region",
        item."searchCriteria"."minimumBedrooms" as "value of search_criteria_minimum_bedrooms",
        item."searchCriteria"."maximumBedrooms" as "value of search_criteria_maximum_bedrooms",
        item."searchCriteria"."priceFrequency" as "value of search_criteria_price_frequency",
        item."searchCriteria"."propertyType" as "value of search_criteria_property_type",
        item."searchCriteria"."propertySubType" as "value of search_criteria_property_sub_type",
        item."listingDetails"."id" as "value of listing_details_id",
        item."listingDetails"."branchId" as "value of listing_details_branch_id",
        item."listingDetails"."bedrooms" as "value of listing_details_bedrooms",
        item."listingDetails"."bathrooms" as "value of listing_details_bathrooms",
        item."listingDetails"."receptions" as "value of listing_details_receptions",
        item."listingDetails"."lifeCycleStatus" as "value of listing_details_life_cycle_status",
        item."listingDetails"."address"."propertyNumberOrName" as "value of listing_details_address_property_number_or_name",
        item."listingDetails"."address"."streetName" as "value of listing_details_address_street_name",
        item."listingDetails"."address"."locality" as "value of listing_details_address_locality",
        item."listingDetails"."address"."townOrCity" as "value of listing_details_address_town_or_city",
        item."listingDetails"."address"."postcode" as "value of listing_details_address_postcode",
        item."listingDetails"."address"."countryCode" as "value of listing_details_address_country_code",
        item."listingDetails"."pricing"."transactionType" as "value of listing_details_pricing_transaction_type",
        item."listingDetails"."pricing"."currencyCode" as "value of listing_details_pricing_currency_code",
        item."listingDetails"."pricing"."rentFrequency" as "value of listing_details_pricing_rent_frequency",
        item."listingDetails"."estimate"."lowerRange" as "value of listing_details_estimate_lower_range",
        item."listingDetails"."estimate"."upperRange" as "value of listing_details_estimate_upper_range",
        item."listingDetails"."estimate"."value" as "value of listing_details_estimate_value",
        item."listingDetails"."estimate"."confidence" as "value of listing_details_estimate_confidence",
        item."listingDetails"."estimate"."confidenceBand" as "value of listing_details_estimate_confidence_band",
        item."listingDetails"."propertyId" as "value of listing_details_property_id",
        item."listingDetails"."uprn" as "value of listing_details_uprn",
        item."listingDetails"."propertyType" as "value of listing_details_property_type",
        item."listingDetails"."sourceBranchId" as "value of listing_details_source_branch_id",
        item."listingDetails"."sourceId" as "value of listing_details_source_id",
        item."listingDetails"."url" as "value of listing_details_url",
        item."createdAt" as "text of created_at",
        item."searchCriteria"."radius" as "text of search_criteria_radius",
        amount_text(item."searchCriteria"."minimumPrice", written(body, '/searchCriteria/minimumPrice')) as "text of search_criteria_minimum_price",
        amount_text(item."searchCriteria"."maximumPrice", written(body, '/searchCriteria/maximumPrice')) as "text of search_criteria_maximum_price",
        amount_text(item."listingDetails"."pricing"."price", written(body, '/listingDetails/pricing/price')) as "text of listing_details_pricing_price"
    from source
),
cast_strictly as (
    select *,
        as_moment("text of created_at") as "value of created_at",
        as_number("text of search_criteria_radius") as "value of search_criteria_radius",
        as_amount("text of search_criteria_minimum_price") as "value of search_criteria_minimum_price",
        as_amount("text of search_criteria_maximum_price") as "value of search_criteria_maximum_price",
        as_amount("text of listing_details_pricing_price") as "value of listing_details_pricing_price",
        try_cast(extra as json) as extra_json
    from texts
),
typed as (
    select *,
        case when (case when item is null then 'not valid JSON' end) is not null or extra is not null and extra_json is null or ("text of created_at" is null) <> ("value of created_at" is null) or ("text of search_criteria_radius" is null) <> ("value of search_criteria_radius" is null) or ("text of search_criteria_minimum_price" is null) <> ("value of search_criteria_minimum_price" is null) or ("text of search_criteria_maximum_price" is null) <> ("value of search_criteria_maximum_price" is null) or ("text of listing_details_pricing_price" is null) <> ("value of listing_details_pricing_price" is null)
            then list_filter([case when item is null then 'not valid JSON' end,
        case when "text of created_at" is not null and "value of created_at" is null and not starts_with("text of created_at", '0001-01-01T00:00') then 'createdAt' end,
        case when "text of search_criteria_radius" is not null and "value of search_criteria_radius" is null then 'searchCriteria.radius' end,
        case when "text of search_criteria_minimum_price" is not null and "value of search_criteria_minimum_price" is null then 'searchCriteria.minimumPrice' end,
        case when "text of search_criteria_maximum_price" is not null and "value of search_criteria_maximum_price" is null then 'searchCriteria.maximumPrice' end,
        case when "text of listing_details_pricing_price" is not null and "value of listing_details_pricing_price" is null then 'listingDetails.pricing.price' end,
        case when extra is not null and extra_json is null then '_extra' end], lambda problem: problem is not null)
            else []::varchar[] end as problems
    from cast_strictly
)
select
    lead_id,
    coalesce(local_time("value of created_at")::date, day) as lead_day,
    scope,
    fetched_at,
    sequence,
    source,
    day as window_day,
    "value of created_at" as "created_at",
        "value of contact_first_name" as "contact_first_name",
        "value of contact_last_name" as "contact_last_name",
        "value of contact_phone_number" as "contact_phone_number",
        "value of contact_email" as "contact_email",
        "value of contact_preferences_method" as "contact_preferences_method",
        "value of contact_preferences_time" as "contact_preferences_time",
        "value of intent" as "intent",
        "value of enquiry_type" as "enquiry_type",
        "value of message" as "message",
        "value of property_use" as "property_use",
        "value of is_overseas" as "is_overseas",
        "value of portal_lead_id" as "portal_lead_id",
        "value of portal_branch_id" as "portal_branch_id",
        "value of portal_company_id" as "portal_company_id",
        "value of portal_group_id" as "portal_group_id",
        "value of source_branch_id" as "source_branch_id",
        "value of recipient_email" as "recipient_email",
        "value of lead_source" as "lead_source",
        "value of portal_source" as "portal_source",
        "value of organise_viewing" as "organise_viewing",
        "value of request_property_details" as "request_property_details",
        "value of consumer_situation" as "consumer_situation",
        "value of consumer_postcode" as "consumer_postcode",
        "value of search_criteria_location_alias" as "search_criteria_location_alias",
        "value of search_criteria_location_area" as "search_criteria_location_area",
        "value of search_criteria_location_area_street" as "search_criteria_location_area_street",
        "value of search_criteria_location_country" as "search_criteria_location_country",
        "value of search_criteria_location_country_code" as "search_criteria_location_country_code",
        "value of search_criteria_location_county_area" as "search_criteria_location_county_area",
        "value of search_criteria_location_district" as "search_criteria_location_district",
        "value of search_criteria_location_incode" as "search_criteria_location_incode",
        "value of search_criteria_location_outcode" as "search_criteria_location_outcode",
        "value of search_criteria_location_post_town" as "search_criteria_location_post_town",
        "value of search_criteria_location_postal_area" as "search_criteria_location_postal_area",
        "value of search_criteria_location_region" as "search_criteria_location_region",
        "value of search_criteria_radius" as "search_criteria_radius",
        "value of search_criteria_minimum_bedrooms" as "search_criteria_minimum_bedrooms",
        "value of search_criteria_maximum_bedrooms" as "search_criteria_maximum_bedrooms",
        "value of search_criteria_minimum_price" as "search_criteria_minimum_price",
        "value of search_criteria_maximum_price" as "search_criteria_maximum_price",
        "value of search_criteria_price_frequency" as "search_criteria_price_frequency",
        "value of search_criteria_property_type" as "search_criteria_property_type",
        "value of search_criteria_property_sub_type" as "search_criteria_property_sub_type",
        "value of listing_details_id" as "listing_details_id",
        "value of listing_details_branch_id" as "listing_details_branch_id",
        "value of listing_details_bedrooms" as "listing_details_bedrooms",
        "value of listing_details_bathrooms" as "listing_details_bathrooms",
        "value of listing_details_receptions" as "listing_details_receptions",
        "value of listing_details_life_cycle_status" as "listing_details_life_cycle_status",
        "value of listing_details_address_property_number_or_name" as "listing_details_address_property_number_or_name",
        "value of listing_details_address_street_name" as "listing_details_address_street_name",
        "value of listing_details_address_locality" as "listing_details_address_locality",
        "value of listing_details_address_town_or_city" as "listing_details_address_town_or_city",
        "value of listing_details_address_postcode" as "listing_details_address_postcode",
        "value of listing_details_address_country_code" as "listing_details_address_country_code",
        "value of listing_details_pricing_transaction_type" as "listing_details_pricing_transaction_type",
        "value of listing_details_pricing_currency_code" as "listing_details_pricing_currency_code",
        "value of listing_details_pricing_price" as "listing_details_pricing_price",
        "value of listing_details_pricing_rent_frequency" as "listing_details_pricing_rent_frequency",
        "value of listing_details_estimate_lower_range" as "listing_details_estimate_lower_range",
        "value of listing_details_estimate_upper_range" as "listing_details_estimate_upper_range",
        "value of listing_details_estimate_value" as "listing_details_estimate_value",
        "value of listing_details_estimate_confidence" as "listing_details_estimate_confidence",
        "value of listing_details_estimate_confidence_band" as "listing_details_estimate_confidence_band",
        "value of listing_details_property_id" as "listing_details_property_id",
        "value of listing_details_uprn" as "listing_details_uprn",
        "value of listing_details_property_type" as "listing_details_property_type",
        "value of listing_details_source_branch_id" as "listing_details_source_branch_id",
        "value of listing_details_source_id" as "listing_details_source_id",
        "value of listing_details_url" as "listing_details_url",
    problems as _problems,
    extra_json as _extra,
    case when created_at is null or contact_email is null or contact_phone_number is null then body end as "text of the lead",
    null::varchar as "list of applicant_viewing_times",
    item."viewingTimes" as "elements of applicant_viewing_times",
    "extras of applicant_viewing_times",
    null::varchar as "list of applicant_listing_images",
    item."listingDetails"."images" as "elements of applicant_listing_images",
    "extras of applicant_listing_images"
from typed;

-- applicant_leads, odd leads
with source as (select *, body as doc from odd_leads),
parsed as (
    select *,
        try(json_transform(doc, '{"id": "VARCHAR", "createdAt": "VARCHAR", "contact": {"firstName": "VARCHAR", "lastName": "VARCHAR", "phoneNumber": "VARCHAR", "email": "VARCHAR", "preferences": {"method": "VARCHAR", "time": "VARCHAR"}}, "intent": "VARCHAR", "enquiryType": "VARCHAR", "message": "VARCHAR", "propertyUse": "VARCHAR", "isOverseas": "VARCHAR", "portalLeadId": "VARCHAR", "portalBranchId": "VARCHAR", "portalCompanyId": "VARCHAR", "portalGroupId": "VARCHAR", "sourceBranchId": "VARCHAR", "recipientEmail": "VARCHAR", "leadSource": "VARCHAR", "portalSource": "VARCHAR", "organiseViewing": "VARCHAR", "requestPropertyDetails": "VARCHAR", "consumerSituation": "VARCHAR", "consumerPostcode": "VARCHAR", "searchCriteria": {"location": {"alias": "VARCHAR", "area": "VARCHAR", "areaStreet": "VARCHAR", "country": "VARCHAR", "countryCode": "VARCHAR", "countyArea": "VARCHAR", "district": "VARCHAR", "incode": "VARCHAR", "outcode": "VARCHAR", "postTown": "VARCHAR", "postalArea": "VARCHAR", "region": "VARCHAR"}, "radius": "VARCHAR", "minimumBedrooms": "VARCHAR", "maximumBedrooms": "VARCHAR", "minimumPrice": "VARCHAR", "maximumPrice": "VARCHAR", "priceFrequency": "VARCHAR", "propertyType": "VARCHAR", "propertySubType": "VARCHAR"}, "listingDetails": {"id": "VARCHAR", "branchId": "VARCHAR", "bedrooms": "VARCHAR", "bathrooms": "VARCHAR", "receptions": "VARCHAR", "lifeCycleStatus": "VARCHAR", "address": {"propertyNumberOrName": "VARCHAR", "streetName": "VARCHAR", "locality": "VARCHAR", "townOrCity": "VARCHAR", "postcode": "VARCHAR", "countryCode": "VARCHAR"}, "pricing": {"transactionType": "VARCHAR", "currencyCode": "VARCHAR", "price": "VARCHAR", "rentFrequency": "VARCHAR"}, "estimate": {"lowerRange": "VARCHAR", "upperRange": "VARCHAR", "value": "VARCHAR", "confidence": "VARCHAR", "confidenceBand": "VARCHAR"}, "propertyId": "VARCHAR", "uprn": "VARCHAR", "propertyType": "VARCHAR", "sourceBranchId": "VARCHAR", "sourceId": "VARCHAR", "url": "VARCHAR", "images": "JSON"}, "viewingTimes": "JSON"}')) as item,
        try(json_keys(doc, ['', '/contact', '/contact/preferences', '/searchCriteria', '/searchCriteria/location', '/listingDetails', '/listingDetails/address', '/listingDetails/pricing', '/listingDetails/estimate'])) as keys
    from source
),
texts as (
    select *,
        item."createdAt" as "text of created_at",
        item."contact"."firstName" as "text of contact_first_name",
        item."contact"."lastName" as "text of contact_last_name",
        item."contact"."phoneNumber" as "text of contact_phone_number",
        item."contact"."email" as "text of contact_email",
        item."contact"."preferences"."method" as "text of contact_preferences_method",
        item."contact"."preferences"."time" as "text of contact_preferences_time",
        item."intent" as "text of intent",
        item."enquiryType" as "text of enquiry_type",
        item."message" as "text of message",
        item."propertyUse" as "text of property_use",
        item."isOverseas" as "text of is_overseas",
        item."portalLeadId" as "text of portal_lead_id",
        item."portalBranchId" as "text of portal_branch_id",
        item."portalCompanyId" as "text of portal_company_id",
        item."portalGroupId" as "text of portal_group_id",
        item."sourceBranchId" as "text of source_branch_id",
        item."recipientEmail" as "text of recipient_email",
        item."leadSource" as "text of lead_source",
        item."portalSource" as "text of portal_source",
        item."organiseViewing" as "text of organise_viewing",
        item."requestPropertyDetails" as "text of request_property_details",
        item."consumerSituation" as "text of consumer_situation",
        item."consumerPostcode" as "text of consumer_postcode",
        item."searchCriteria"."location"."alias" as "text of search_criteria_location_alias",
        item."searchCriteria"."location"."area" as "text of search_criteria_location_area",
        item."searchCriteria"."location"."areaStreet" as "text of search_criteria_location_area_street",
        item."searchCriteria"."location"."country" as "text of search_criteria_location_country",
        item."searchCriteria"."location"."countryCode" as "text of search_criteria_location_country_code",
        item."searchCriteria"."location"."countyArea" as "text of search_criteria_location_county_area",
        item."searchCriteria"."location"."district" as "text of search_criteria_location_district",
        item."searchCriteria"."location"."incode" as "text of search_criteria_location_incode",
        item."searchCriteria"."location"."outcode" as "text of search_criteria_location_outcode",
        item."searchCriteria"."location"."postTown" as "text of search_criteria_location_post_town",
        item."searchCriteria"."location"."postalArea" as "text of search_criteria_location_postal_area",
        item."searchCriteria"."location"."region" as "text of search_criteria_location_region",
        item."searchCriteria"."radius" as "text of search_criteria_radius",
        integer_text(item."searchCriteria"."minimumBedrooms", written(body, '/searchCriteria/minimumBedrooms')) as "text of search_criteria_minimum_bedrooms",
        integer_text(item."searchCriteria"."maximumBedrooms", written(body, '/searchCriteria/maximumBedrooms')) as "text of search_criteria_maximum_bedrooms",
        amount_text(item."searchCriteria"."minimumPrice", written(body, '/searchCriteria/minimumPrice')) as "text of search_criteria_minimum_price",
        amount_text(item."searchCriteria"."maximumPrice", written(body, '/searchCriteria/maximumPrice')) as "text of search_criteria_maximum_price",
        item."searchCriteria"."priceFrequency" as "text of search_criteria_price_frequency",
        item."searchCriteria"."propertyType" as "text of search_criteria_property_type",
        item."searchCriteria"."propertySubType" as "text of search_criteria_property_sub_type",
        item."listingDetails"."id" as "text of listing_details_id",
        item."listingDetails"."branchId" as "text of listing_details_branch_id",
        integer_text(item."listingDetails"."bedrooms", written(body, '/listingDetails/bedrooms')) as "text of listing_details_bedrooms",
        integer_text(item."listingDetails"."bathrooms", written(body, '/listingDetails/bathrooms')) as "text of listing_details_bathrooms",
        integer_text(item."listingDetails"."receptions", written(body, '/listingDetails/receptions')) as "text of listing_details_receptions",
        item."listingDetails"."lifeCycleStatus" as "text of listing_details_life_cycle_status",
        item."listingDetails"."address"."propertyNumberOrName" as "text of listing_details_address_property_number_or_name",
        item."listingDetails"."address"."streetName" as "text of listing_details_address_street_name",
        item."listingDetails"."address"."locality" as "text of listing_details_address_locality",
        item."listingDetails"."address"."townOrCity" as "text of listing_details_address_town_or_city",
        item."listingDetails"."address"."postcode" as "text of listing_details_address_postcode",
        item."listingDetails"."address"."countryCode" as "text of listing_details_address_country_code",
        item."listingDetails"."pricing"."transactionType" as "text of listing_details_pricing_transaction_type",
        item."listingDetails"."pricing"."currencyCode" as "text of listing_details_pricing_currency_code",
        amount_text(item."listingDetails"."pricing"."price", written(body, '/listingDetails/pricing/price')) as "text of listing_details_pricing_price",
        item."listingDetails"."pricing"."rentFrequency" as "text of listing_details_pricing_rent_frequency",
        integer_text(item."listingDetails"."estimate"."lowerRange", written(body, '/listingDetails/estimate/lowerRange')) as "text of listing_details_estimate_lower_range",
        integer_text(item."listingDetails"."estimate"."upperRange", written(body, '/listingDetails/estimate/upperRange')) as "text of listing_details_estimate_upper_range",
        integer_text(item."listingDetails"."estimate"."value", written(body, '/listingDetails/estimate/value')) as "text of listing_details_estimate_value",
        integer_text(item."listingDetails"."estimate"."confidence", written(body, '/listingDetails/estimate/confidence')) as "text of listing_details_estimate_confidence",
        item."listingDetails"."estimate"."confidenceBand" as "text of listing_details_estimate_confidence_band",
        item."listingDetails"."propertyId" as "text of listing_details_property_id",
        integer_text(item."listingDetails"."uprn", written(body, '/listingDetails/uprn')) as "text of listing_details_uprn",
        item."listingDetails"."propertyType" as "text of listing_details_property_type",
        item."listingDetails"."sourceBranchId" as "text of listing_details_source_branch_id",
        item."listingDetails"."sourceId" as "text of listing_details_source_id",
        item."listingDetails"."url" as "text of listing_details_url",
        coalesce(len(keys[1]) > (item."id" is not null)::integer + (item."createdAt" is not null)::integer + (item."contact" is not null)::integer + (item."intent" is not null)::integer + (item."enquiryType" is not null)::integer + (item."message" is not null)::integer + (item."propertyUse" is not null)::integer + (item."isOverseas" is not null)::integer + (item."portalLeadId" is not null)::integer + (item."portalBranchId" is not null)::integer + (item."portalCompanyId" is not null)::integer + (item."portalGroupId" is not null)::integer + (item."sourceBranchId" is not null)::integer + (item."recipientEmail" is not null)::integer + (item."leadSource" is not null)::integer + (item."portalSource" is not null)::integer + (item."organiseViewing" is not null)::integer + (item."requestPropertyDetails" is not null)::integer + (item."consumerSituation" is not null)::integer + (item."consumerPostcode" is not null)::integer + (item."searchCriteria" is not null)::integer + (item."listingDetails" is not null)::integer + (item."viewingTimes" is not null)::integer, false) or coalesce(len(keys[2]) > (item."contact"."firstName" is not null)::integer + (item."contact"."lastName" is not null)::integer + (item."contact"."phoneNumber" is not null)::integer + (item."contact"."email" is not null)::integer + (item."contact"."preferences" is not null)::integer, false) or coalesce(len(keys[3]) > (item."contact"."preferences"."method" is not null)::integer + (item."contact"."preferences"."time" is not null)::integer, false) or coalesce(len(keys[4]) > (item."searchCriteria"."location" is not null)::integer + (item."searchCriteria"."radius" is not null)::integer + (item."searchCriteria"."minimumBedrooms" is not null)::integer + (item."searchCriteria"."maximumBedrooms" is not null)::integer + (item."searchCriteria"."minimumPrice" is not null)::integer + (item."searchCriteria"."maximumPrice" is not null)::integer + (item."searchCriteria"."priceFrequency" is not null)::integer + (item."searchCriteria"."propertyType" is not null)::integer + (item."searchCriteria"."propertySubType" is not null)::integer, false) or coalesce(len(keys[5]) > (item."searchCriteria"."location"."alias" is not null)::integer + (item."searchCriteria"."location"."area" is not null)::integer + (item."searchCriteria"."location"."areaStreet" is not null)::integer + (item."searchCriteria"."location"."country" is not null)::integer + (item."searchCriteria"."location"."countryCode" is not null)::integer + (item."searchCriteria"."location"."countyArea" is not null)::integer + (item."searchCriteria"."location"."district" is not null)::integer + (item."searchCriteria"."location"."incode" is not null)::integer + (item."searchCriteria"."location"."outcode" is not null)::integer + (item."searchCriteria"."location"."postTown" is not null)::integer + (item."searchCriteria"."location"."postalArea" is not null)::integer + (item."searchCriteria"."location"."region" is not null)::integer, false) or coalesce(len(keys[6]) > (item."listingDetails"."id" is not null)::integer + (item."listingDetails"."branchId" is not null)::integer + (item."listingDetails"."bedrooms" is not null)::integer + (item."listingDetails"."bathrooms" is not null)::integer + (item."listingDetails"."receptions" is not null)::integer + (item."listingDetails"."lifeCycleStatus" is not null)::integer + (item."listingDetails"."address" is not null)::integer + (item."listingDetails"."pricing" is not null)::integer + (item."listingDetails"."estimate" is not null)::integer + (item."listingDetails"."propertyId" is not null)::integer + (item."listingDetails"."uprn" is not null)::integer + (item."listingDetails"."propertyType" is not null)::integer + (item."listingDetails"."sourceBranchId" is not null)::integer + (item."listingDetails"."sourceId" is not null)::integer + (item."listingDetails"."url" is not null)::integer + (item."listingDetails"."images" is not null)::integer, false) or coalesce(len(keys[7]) > (item."listingDetails"."address"."propertyNumberOrName" is not null)::integer + (item."listingDetails"."address"."streetName" is not null)::integer + (item."listingDetails"."address"."locality" is not null)::integer + (item."listingDetails"."address"."townOrCity" is not null)::integer + (item."listingDetails"."address"."postcode" is not null)::integer + (item."listingDetails"."address"."countryCode" is not null)::integer, false) or coalesce(len(keys[8]) > (item."listingDetails"."pricing"."transactionType" is not null)::integer + (item."listingDetails"."pricing"."currencyCode" is not null)::integer + (item."listingDetails"."pricing"."price" is not null)::integer + (item."listingDetails"."pricing"."rentFrequency" is not null)::integer, false) or coalesce(len(keys[9]) > (item."listingDetails"."estimate"."lowerRange" is not null)::integer + (item."listingDetails"."estimate"."upperRange" is not null)::integer + (item."listingDetails"."estimate"."value" is not null)::integer + (item."listingDetails"."estimate"."confidence" is not null)::integer + (item."listingDetails"."estimate"."confidenceBand" is not null)::integer, false) as has_more
    from parsed
),
cast_strictly as (
    select *,
        as_moment("text of created_at") as "value of created_at",
        as_text("text of contact_first_name", json_type(doc, '/contact/firstName'), written(body, '/contact/firstName')) as "value of contact_first_name",
        as_text("text of contact_last_name", json_type(doc, '/contact/lastName'), written(body, '/contact/lastName')) as "value of contact_last_name",
        as_text("text of contact_phone_number", json_type(doc, '/contact/phoneNumber'), written(body, '/contact/phoneNumber')) as "value of contact_phone_number",
        as_text("text of contact_email", json_type(doc, '/contact/email'), written(body, '/contact/email')) as "value of contact_email",
        as_text("text of contact_preferences_method", json_type(doc, '/contact/preferences/method'), written(body, '/contact/preferences/method')) as "value of contact_preferences_method",
        as_text("text of contact_preferences_time", json_type(doc, '/contact/preferences/time'), written(body, '/contact/preferences/time')) as "value of contact_preferences_time",
        as_text("text of intent", json_type(doc, '/intent'), written(body, '/intent')) as "value of intent",
        as_text("text of enquiry_type", json_type(doc, '/enquiryType'), written(body, '/enquiryType')) as "value of enquiry_type",
        as_text("text of message", json_type(doc, '/message'), written(body, '/message')) as "value of message",
        as_text("text of property_use", json_type(doc, '/propertyUse'), written(body, '/propertyUse')) as "value of property_use",
        as_boolean("text of is_overseas") as "value of is_overseas",
        as_text("text of portal_lead_id", json_type(doc, '/portalLeadId'), written(body, '/portalLeadId')) as "value of portal_lead_id",
        as_text("text of portal_branch_id", json_type(doc, '/portalBranchId'), written(body, '/portalBranchId')) as "value of portal_branch_id",
        as_text("text of portal_company_id", json_type(doc, '/portalCompanyId'), written(body, '/portalCompanyId')) as "value of portal_company_id",
        as_text("text of portal_group_id", json_type(doc, '/portalGroupId'), written(body, '/portalGroupId')) as "value of portal_group_id",
        as_text("text of source_branch_id", json_type(doc, '/sourceBranchId'), written(body, '/sourceBranchId')) as "value of source_branch_id",
        as_text("text of recipient_email", json_type(doc, '/recipientEmail'), written(body, '/recipientEmail')) as "value of recipient_email",
        as_text("text of lead_source", json_type(doc, '/leadSource'), written(body, '/leadSource')) as "value of lead_source",
        as_text("text of portal_source", json_type(doc, '/portalSource'), written(body, '/portalSource')) as "value of portal_source",
        as_boolean("text of organise_viewing") as "value of organise_viewing",
        as_boolean("text of request_property_details") as "value of request_property_details",
        as_text("text of consumer_situation", json_type(doc, '/consumerSituation'), written(body, '/consumerSituation')) as "value of consumer_situation",
        as_text("text of consumer_postcode", json_type(doc, '/consumerPostcode'), written(body, '/consumerPostcode')) as "value of consumer_postcode",
        as_text("text of search_criteria_location_alias", json_type(doc, '/searchCriteria/location/alias'), written(body, '/searchCriteria/location/alias')) as "value of search_criteria_location_alias",
        as_text("text of search_criteria_location_area", json_type(doc, '/searchCriteria/location/area'), written(body, '/searchCriteria/location/area')) as "value of search_criteria_location_area",
        as_text("text of search_criteria_location_area_street", json_type(doc, '/searchCriteria/location/areaStreet'), written(body, '/searchCriteria/location/areaStreet')) as "value of search_criteria_location_area_street",
        as_text("text of search_criteria_location_country", json_type(doc, '/searchCriteria/location/country'), written(body, '/searchCriteria/location/country')) as "value of search_criteria_location_country",
        as_text("text of search_criteria_location_country_code", json_type(doc, '/searchCriteria/location/countryCode'), written(body, '/searchCriteria/location/countryCode')) as "value of search_criteria_location_country_code",
        as_text("text of search_criteria_location_county_area", json_type(doc, '/searchCriteria/location/countyArea'), written(body, '/searchCriteria/location/countyArea')) as "value of search_criteria_location_county_area",
        as_text("text of search_criteria_location_district", json_type(doc, '/searchCriteria/location/district'), written(body, '/searchCriteria/location/district')) as "value of search_criteria_location_district",
        as_text("text of search_criteria_location_incode", json_type(doc, '/searchCriteria/location/incode'), written(body, '/searchCriteria/location/incode')) as "value of search_criteria_location_incode",
        as_text("text of search_criteria_location_outcode", json_type(doc, '/searchCriteria/location/outcode'), written(body, '/searchCriteria/location/outcode')) as "value of search_criteria_location_outcode",
        as_text("text of search_criteria_location_post_town", json_type(doc, '/searchCriteria/location/postTown'), written(body, '/searchCriteria/location/postTown')) as "value of search_criteria_location_post_town",
        as_text("text of search_criteria_location_postal_area", json_type(doc, '/searchCriteria/location/postalArea'), written(body, '/searchCriteria/location/postalArea')) as "value of search_criteria_location_postal_area",
        as_text("text of search_criteria_location_region", json_type(doc, '/searchCriteria/location/region'), written(body, '/searchCriteria/location/region')) as "value of search_criteria_location_region",
        as_number("text of search_criteria_radius") as "value of search_criteria_radius",
        as_integer("text of search_criteria_minimum_bedrooms") as "value of search_criteria_minimum_bedrooms",
        as_integer("text of search_criteria_maximum_bedrooms") as "value of search_criteria_maximum_bedrooms",
        as_amount("text of search_criteria_minimum_price") as "value of search_criteria_minimum_price",
        as_amount("text of search_criteria_maximum_price") as "value of search_criteria_maximum_price",
        as_text("text of search_criteria_price_frequency", json_type(doc, '/searchCriteria/priceFrequency'), written(body, '/searchCriteria/priceFrequency')) as "value of search_criteria_price_frequency",
        as_text("text of search_criteria_property_type", json_type(doc, '/searchCriteria/propertyType'), written(body, '/searchCriteria/propertyType')) as "value of search_criteria_property_type",
        as_text("text of search_criteria_property_sub_type", json_type(doc, '/searchCriteria/propertySubType'), written(body, '/searchCriteria/propertySubType')) as "value of search_criteria_property_sub_type",
        as_text("text of listing_details_id", json_type(doc, '/listingDetails/id'), written(body, '/listingDetails/id')) as "value of listing_details_id",
        as_text("text of listing_details_branch_id", json_type(doc, '/listingDetails/branchId'), written(body, '/listingDetails/branchId')) as "value of listing_details_branch_id",
        as_integer("text of listing_details_bedrooms") as "value of listing_details_bedrooms",
        as_integer("text of listing_details_bathrooms") as "value of listing_details_bathrooms",
        as_integer("text of listing_details_receptions") as "value of listing_details_receptions",
        as_text("text of listing_details_life_cycle_status", json_type(doc, '/listingDetails/lifeCycleStatus'), written(body, '/listingDetails/lifeCycleStatus')) as "value of listing_details_life_cycle_status",
        as_text("text of listing_details_address_property_number_or_name", json_type(doc, '/listingDetails/address/propertyNumberOrName'), written(body, '/listingDetails/address/propertyNumberOrName')) as "value of listing_details_address_property_number_or_name",
        as_text("text of listing_details_address_street_name", json_type(doc, '/listingDetails/address/streetName'), written(body, '/listingDetails/address/streetName')) as "value of listing_details_address_street_name",
        as_text("text of listing_details_address_locality", json_type(doc, '/listingDetails/address/locality'), written(body, '/listingDetails/address/locality')) as "value of listing_details_address_locality",
        as_text("text of listing_details_address_town_or_city", json_type(doc, '/listingDetails/address/townOrCity'), written(body, '/listingDetails/address/townOrCity')) as "value of listing_details_address_town_or_city",
        as_text("text of listing_details_address_postcode", json_type(doc, '/listingDetails/address/postcode'), written(body, '/listingDetails/address/postcode')) as "value of listing_details_address_postcode",
        as_text("text of listing_details_address_country_code", json_type(doc, '/listingDetails/address/countryCode'), written(body, '/listingDetails/address/countryCode')) as "value of listing_details_address_country_code",
        as_text("text of listing_details_pricing_transaction_type", json_type(doc, '/listingDetails/pricing/transactionType'), written(body, '/listingDetails/pricing/transactionType')) as "value of listing_details_pricing_transaction_type",
        as_text("text of listing_details_pricing_currency_code", json_type(doc, '/listingDetails/pricing/currencyCode'), written(body, '/listingDetails/pricing/currencyCode')) as "value of listing_details_pricing_currency_code",
        as_amount("text of listing_details_pricing_price") as "value of listing_details_pricing_price",
        as_text("text of listing_details_pricing_rent_frequency", json_type(doc, '/listingDetails/pricing/rentFrequency'), written(body, '/listingDetails/pricing/rentFrequency')) as "value of listing_details_pricing_rent_frequency",
        as_integer("text of listing_details_estimate_lower_range") as "value of listing_details_estimate_lower_range",
        as_integer("text of listing_details_estimate_upper_range") as "value of listing_details_estimate_upper_range",
        as_integer("text of listing_details_estimate_value") as "value of listing_details_estimate_value",
        as_integer("text of listing_details_estimate_confidence") as "value of listing_details_estimate_confidence",
        as_text("text of listing_details_estimate_confidence_band", json_type(doc, '/listingDetails/estimate/confidenceBand'), written(body, '/listingDetails/estimate/confidenceBand')) as "value of listing_details_estimate_confidence_band",
        as_text("text of listing_details_property_id", json_type(doc, '/listingDetails/propertyId'), written(body, '/listingDetails/propertyId')) as "value of listing_details_property_id",
        as_integer("text of listing_details_uprn") as "value of listing_details_uprn",
        as_text("text of listing_details_property_type", json_type(doc, '/listingDetails/propertyType'), written(body, '/listingDetails/propertyType')) as "value of listing_details_property_type",
        as_text("text of listing_details_source_branch_id", json_type(doc, '/listingDetails/sourceBranchId'), written(body, '/listingDetails/sourceBranchId')) as "value of listing_details_source_branch_id",
        as_text("text of listing_details_source_id", json_type(doc, '/listingDetails/sourceId'), written(body, '/listingDetails/sourceId')) as "value of listing_details_source_id",
        as_text("text of listing_details_url", json_type(doc, '/listingDetails/url'), written(body, '/listingDetails/url')) as "value of listing_details_url",
        case when has_more and (case when keys[1][-1] in ('id', 'createdAt', 'contact', 'intent', 'enquiryType', 'message', 'propertyUse', 'isOverseas', 'portalLeadId', 'portalBranchId', 'portalCompanyId', 'portalGroupId', 'sourceBranchId', 'recipientEmail', 'leadSource', 'portalSource', 'organiseViewing', 'requestPropertyDetails', 'consumerSituation', 'consumerPostcode', 'searchCriteria', 'listingDetails', 'viewingTimes') then not list_has_all(['id', 'createdAt', 'contact', 'intent', 'enquiryType', 'message', 'propertyUse', 'isOverseas', 'portalLeadId', 'portalBranchId', 'portalCompanyId', 'portalGroupId', 'sourceBranchId', 'recipientEmail', 'leadSource', 'portalSource', 'organiseViewing', 'requestPropertyDetails', 'consumerSituation', 'consumerPostcode', 'searchCriteria', 'listingDetails', 'viewingTimes'], keys[1]) else len(keys[1]) > 0 end or case when keys[2][-1] in ('firstName', 'lastName', 'phoneNumber', 'email', 'preferences') then not list_has_all(['firstName', 'lastName', 'phoneNumber', 'email', 'preferences'], keys[2]) else len(keys[2]) > 0 end or case when keys[3][-1] in ('method', 'time') then not list_has_all(['method', 'time'], keys[3]) else len(keys[3]) > 0 end or case when keys[4][-1] in ('location', 'radius', 'minimumBedrooms', 'maximumBedrooms', 'minimumPrice', 'maximumPrice', 'priceFrequency', 'propertyType', 'propertySubType') then not list_has_all(['location', 'radius', 'minimumBedrooms', 'maximumBedrooms', 'minimumPrice', 'maximumPrice', 'priceFrequency', 'propertyType', 'propertySubType'], keys[4]) else len(keys[4]) > 0 end or case when keys[5][-1] in ('alias', 'area', 'areaStreet', 'country', 'countryCode', 'countyArea', 'district', 'incode', 'outcode', 'postTown', 'postalArea', 'region') then not list_has_all(['alias', 'area', 'areaStreet', 'country', 'countryCode', 'countyArea', 'district', 'incode', 'outcode', 'postTown', 'postalArea', 'region'], keys[5]) else len(keys[5]) > 0 end or case when keys[6][-1] in ('id', 'branchId', 'bedrooms', 'bathrooms', 'receptions', 'lifeCycleStatus', 'address', 'pricing', 'estimate', 'propertyId', 'uprn', 'propertyType', 'sourceBranchId', 'sourceId', 'url', 'images') then not list_has_all(['id', 'branchId', 'bedrooms', 'bathrooms', 'receptions', 'lifeCycleStatus', 'address', 'pricing', 'estimate', 'propertyId', 'uprn', 'propertyType', 'sourceBranchId', 'sourceId', 'url', 'images'], keys[6]) else len(keys[6]) > 0 end or case when keys[7][-1] in ('propertyNumberOrName', 'streetName', 'locality', 'townOrCity', 'postcode', 'countryCode') then not list_has_all(['propertyNumberOrName', 'streetName', 'locality', 'townOrCity', 'postcode', 'countryCode'], keys[7]) else len(keys[7]) > 0 end or case when keys[8][-1] in ('transactionType', 'currencyCode', 'price', 'rentFrequency') then not list_has_all(['transactionType', 'currencyCode', 'price', 'rentFrequency'], keys[8]) else len(keys[8]) > 0 end or case when keys[9][-1] in ('lowerRange', 'upperRange', 'value', 'confidence', 'confidenceBand') then not list_has_all(['lowerRange', 'upperRange', 'value', 'confidence', 'confidenceBand'], keys[9]) else len(keys[9]) > 0 end)
            then coalesce(extra_of_lead(body), '') end as extra
    from texts
),
checked as (
    select *, try_cast(extra as json) as extra_json
    from cast_strictly
),
typed as (
    select *,
        list_concat(
            case when (coalesce(oddity, case when item is null then 'not valid JSON' end)) is not null or extra is not null and extra_json is null or ("text of created_at" is null) <> ("value of created_at" is null) or ("text of contact_first_name" is null) <> ("value of contact_first_name" is null) or ("text of contact_last_name" is null) <> ("value of contact_last_name" is null) or ("text of contact_phone_number" is null) <> ("value of contact_phone_number" is null) or ("text of contact_email" is null) <> ("value of contact_email" is null) or ("text of contact_preferences_method" is null) <> ("value of contact_preferences_method" is null) or ("text of contact_preferences_time" is null) <> ("value of contact_preferences_time" is null) or ("text of intent" is null) <> ("value of intent" is null) or ("text of enquiry_type" is null) <> ("value of enquiry_type" is null) or ("text of message" is null) <> ("value of message" is null) or ("text of property_use" is null) <> ("value of property_use" is null) or ("text of is_overseas" is null) <> ("value of is_overseas" is null) or ("text of portal_lead_id" is null) <> ("value of portal_lead_id" is null) or ("text of portal_branch_id" is null) <> ("value of portal_branch_id" is null) or ("text of portal_company_id" is null) <> ("value of portal_company_id" is null) or ("text of portal_group_id" is null) <> ("value of portal_group_id" is null) or ("text of source_branch_id" is null) <> ("value of source_branch_id" is null) or ("text of recipient_email" is null) <> ("value of recipient_email" is null) or ("text of lead_source" is null) <> ("value of lead_source" is null) or ("text of portal_source" is null) <> ("value of portal_source" is null) or ("text of organise_viewing" is null) <> ("value of organise_viewing" is null) or ("text of request_property_details" is null) <> ("value of request_property_details" is null) or ("text of consumer_situation" is null) <> ("value of consumer_situation" is null) or ("text of consumer_postcode" is null) <> ("value of consumer_postcode" is null) or ("text of search_criteria_location_alias" is null) <> ("value of search_criteria_location_alias" is null) or ("text of search_criteria_location_area" is null) <> ("value of search_criteria_location_area" is null) or ("text of search_criteria_location_area_street" is null) <> ("value of search_criteria_location_area_street" is null) or ("text of search_criteria_location_country" is null) <> ("value of search_criteria_location_country" is null) or ("text of search_criteria_location_country_code" is null) <> ("value of search_criteria_location_country_code" is null) or ("text of search_criteria_location_county_area" is null) <> ("value of search_criteria_location_county_area" is null) or ("text of search_criteria_location_district" is null) <> ("value of search_criteria_location_district" is null) or ("text of search_criteria_location_incode" is null) <> ("value of search_criteria_location_incode" is null) or ("text of search_criteria_location_outcode" is null) <> ("value of search_criteria_location_outcode" is null) or ("text of search_criteria_location_post_town" is null) <> ("value of search_criteria_location_post_town" is null) or ("text of search_criteria_location_postal_area" is null) <> ("value of search_criteria_location_postal_area" is null) or ("text of search_criteria_location_region" is null) <> ("value of search_criteria_location_region" is null) or ("text of search_criteria_radius" is null) <> ("value of search_criteria_radius" is null) or ("text of search_criteria_minimum_bedrooms" is null) <> ("value of search_criteria_minimum_bedrooms" is null) or ("text of search_criteria_maximum_bedrooms" is null) <> ("value of search_criteria_maximum_bedrooms" is null) or ("text of search_criteria_minimum_price" is null) <> ("value of search_criteria_minimum_price" is null) or ("text of search_criteria_maximum_price" is null) <> ("value of search_criteria_maximum_price" is null) or ("text of search_criteria_price_frequency" is null) <> ("value of search_criteria_price_frequency" is null) or ("text of search_criteria_property_type" is null) <> ("value of search_criteria_property_type" is null) or ("text of search_criteria_property_sub_type" is null) <> ("value of search_criteria_property_sub_type" is null) or ("text of listing_details_id" is null) <> ("value of listing_details_id" is null) or ("text of listing_details_branch_id" is null) <> ("value of listing_details_branch_id" is null) or ("text of listing_details_bedrooms" is null) <> ("value of listing_details_bedrooms" is null) or ("text of listing_details_bathrooms" is null) <> ("value of listing_details_bathrooms" is null) or ("text of listing_details_receptions" is null) <> ("value of listing_details_receptions" is null) or ("text of listing_details_life_cycle_status" is null) <> ("value of listing_details_life_cycle_status" is null) or ("text of listing_details_address_property_number_or_name" is null) <> ("value of listing_details_address_property_number_or_name" is null) or ("text of listing_details_address_street_name" is null) <> ("value of listing_details_address_street_name" is null) or ("text of listing_details_address_locality" is null) <> ("value of listing_details_address_locality" is null) or ("text of listing_details_address_town_or_city" is null) <> ("value of listing_details_address_town_or_city" is null) or ("text of listing_details_address_postcode" is null) <> ("value of listing_details_address_postcode" is null) or ("text of listing_details_address_country_code" is null) <> ("value of listing_details_address_country_code" is null) or ("text of listing_details_pricing_transaction_type" is null) <> ("value of listing_details_pricing_transaction_type" is null) or ("text of listing_details_pricing_currency_code" is null) <> ("value of listing_details_pricing_currency_code" is null) or ("text of listing_details_pricing_price" is null) <> ("value of listing_details_pricing_price" is null) or ("text of listing_details_pricing_rent_frequency" is null) <> ("value of listing_details_pricing_rent_frequency" is null) or ("text of listing_details_estimate_lower_range" is null) <> ("value of listing_details_estimate_lower_range" is null) or ("text of listing_details_estimate_upper_range" is null) <> ("value of listing_details_estimate_upper_range" is null) or ("text of listing_details_estimate_value" is null) <> ("value of listing_details_estimate_value" is null) or ("text of listing_details_estimate_confidence" is null) <> ("value of listing_details_estimate_confidence" is null) or ("text of listing_details_estimate_confidence_band" is null) <> ("value of listing_details_estimate_confidence_band" is null) or ("text of listing_details_property_id" is null) <> ("value of listing_details_property_id" is null) or ("text of listing_details_uprn" is null) <> ("value of listing_details_uprn" is null) or ("text of listing_details_property_type" is null) <> ("value of listing_details_property_type" is null) or ("text of listing_details_source_branch_id" is null) <> ("value of listing_details_source_branch_id" is null) or ("text of listing_details_source_id" is null) <> ("value of listing_details_source_id" is null) or ("text of listing_details_url" is null) <> ("value of listing_details_url" is null) or item."contact" is not null and coalesce("text of contact_first_name", "text of contact_last_name", "text of contact_phone_number", "text of contact_email", "text of contact_preferences_method", "text of contact_preferences_time") is null or item."contact"."preferences" is not null and coalesce("text of contact_preferences_method", "text of contact_preferences_time") is null or item."searchCriteria" is not null and coalesce("text of search_criteria_location_alias", "text of search_criteria_location_area", "text of search_criteria_location_area_street", "text of search_criteria_location_country", "text of search_criteria_location_country_code", "text of search_criteria_location_county_area", "text of search_criteria_location_district", "text of search_criteria_location_incode", "text of search_criteria_location_outcode", "text of search_criteria_location_post_town", "text of search_criteria_location_postal_area", "text of search_criteria_location_region", "text of search_criteria_radius", "text of search_criteria_minimum_bedrooms", "text of search_criteria_maximum_bedrooms", "text of search_criteria_minimum_price", "text of search_criteria_maximum_price", "text of search_criteria_price_frequency", "text of search_criteria_property_type", "text of search_criteria_property_sub_type") is null or item."searchCriteria"."location" is not null and coalesce("text of search_criteria_location_alias", "text of search_criteria_location_area", "text of search_criteria_location_area_street", "text of search_criteria_location_country", "text of search_criteria_location_country_code", "text of search_criteria_location_county_area", "text of search_criteria_location_district", "text of search_criteria_location_incode", "text of search_criteria_location_outcode", "text of search_criteria_location_post_town", "text of search_criteria_location_postal_area", "text of search_criteria_location_region") is null or item."listingDetails" is not null and coalesce("text of listing_details_id", "text of listing_details_branch_id", "text of listing_details_bedrooms", "text of listing_details_bathrooms", "text of listing_details_receptions", "text of listing_details_life_cycle_status", "text of listing_details_address_property_number_or_name", "text of listing_details_address_street_name", "text of listing_details_address_locality", "text of listing_details_address_town_or_city", "text of listing_details_address_postcode", "text of listing_details_address_country_code", "text of listing_details_pricing_transaction_type", "text of listing_details_pricing_currency_code", "text of listing_details_pricing_price", "text of listing_details_pricing_rent_frequency", "text of listing_details_estimate_lower_range", "text of listing_details_estimate_upper_range", "text of listing_details_estimate_value", "text of listing_details_estimate_confidence", "text of listing_details_estimate_confidence_band", "text of listing_details_property_id", "text of listing_details_uprn", "text of listing_details_property_type", "text of listing_details_source_branch_id", "text of listing_details_source_id", "text of listing_details_url", item."listingDetails"."images"::varchar) is null or item."listingDetails"."address" is not null and coalesce("text of listing_details_address_property_number_or_name", "text of listing_details_address_street_name", "text of listing_details_address_locality", "text of listing_details_address_town_or_city", "text of listing_details_address_postcode", "text of listing_details_address_country_code") is null or item."listingDetails"."pricing" is not null and coalesce("text of listing_details_pricing_transaction_type", "text of listing_details_pricing_currency_code", "text of listing_details_pricing_price", "text of listing_details_pricing_rent_frequency") is null or item."listingDetails"."estimate" is not null and coalesce("text of listing_details_estimate_lower_range", "text of listing_details_estimate_upper_range", "text of listing_details_estimate_value", "text of listing_details_estimate_confidence", "text of listing_details_estimate_confidence_band") is null or not starts_with(item."viewingTimes"::varchar, '[') or not starts_with(item."listingDetails"."images"::varchar, '[')
                then list_filter([coalesce(oddity, case when item is null then 'not valid JSON' end),
        case when "text of created_at" is not null and "value of created_at" is null and not starts_with("text of created_at", '0001-01-01T00:00') then 'createdAt' end,
        case when "text of contact_first_name" is not null and "value of contact_first_name" is null then 'contact.firstName' end,
        case when "text of contact_last_name" is not null and "value of contact_last_name" is null then 'contact.lastName' end,
        case when "text of contact_phone_number" is not null and "value of contact_phone_number" is null then 'contact.phoneNumber' end,
        case when "text of contact_email" is not null and "value of contact_email" is null then 'contact.email' end,
        case when "text of contact_preferences_method" is not null and "value of contact_preferences_method" is null then 'contact.preferences.method' end,
        case when "text of contact_preferences_time" is not null and "value of contact_preferences_time" is null then 'contact.preferences.time' end,
        case when "text of intent" is not null and "value of intent" is null then 'intent' end,
        case when "text of enquiry_type" is not null and "value of enquiry_type" is null then 'enquiryType' end,
        case when "text of message" is not null and "value of message" is null then 'message' end,
        case when "text of property_use" is not null and "value of property_use" is null then 'propertyUse' end,
        case when "text of is_overseas" is not null and "value of is_overseas" is null then 'isOverseas' end,
        case when "text of portal_lead_id" is not null and "value of portal_lead_id" is null then 'portalLeadId' end,
        case when "text of portal_branch_id" is not null and "value of portal_branch_id" is null then 'portalBranchId' end,
        case when "text of portal_company_id" is not null and "value of portal_company_id" is null then 'portalCompanyId' end,
        case when "text of portal_group_id" is not null and "value of portal_group_id" is null then 'portalGroupId' end,
        case when "text of source_branch_id" is not null and "value of source_branch_id" is null then 'sourceBranchId' end,
        case when "text of recipient_email" is not null and "value of recipient_email" is null then 'recipientEmail' end,
        case when "text of lead_source" is not null and "value of lead_source" is null then 'leadSource' end,
        case when "text of portal_source" is not null and "value of portal_source" is null then 'portalSource' end,
        case when "text of organise_viewing" is not null and "value of organise_viewing" is null then 'organiseViewing' end,
        case when "text of request_property_details" is not null and "value of request_property_details" is null then 'requestPropertyDetails' end,
        case when "text of consumer_situation" is not null and "value of consumer_situation" is null then 'consumerSituation' end,
        case when "text of consumer_postcode" is not null and "value of consumer_postcode" is null then 'consumerPostcode' end,
        case when "text of search_criteria_location_alias" is not null and "value of search_criteria_location_alias" is null then 'searchCriteria.location.alias' end,
        case when "text of search_criteria_location_area" is not null and "value of search_criteria_location_area" is null then 'searchCriteria.location.area' end,
        case when "text of search_criteria_location_area_street" is not null and "value of search_criteria_location_area_street" is null then 'searchCriteria.location.areaStreet' end,
        case when "text of search_criteria_location_country" is not null and "value of search_criteria_location_country" is null then 'searchCriteria.location.country' end,
        case when "text of search_criteria_location_country_code" is not null and "value of search_criteria_location_country_code" is null then 'searchCriteria.location.countryCode' end,
        case when "text of search_criteria_location_county_area" is not null and "value of search_criteria_location_county_area" is null then 'searchCriteria.location.countyArea' end,
        case when "text of search_criteria_location_district" is not null and "value of search_criteria_location_district" is null then 'searchCriteria.location.district' end,
        case when "text of search_criteria_location_incode" is not null and "value of search_criteria_location_incode" is null then 'searchCriteria.location.incode' end,
        case when "text of search_criteria_location_outcode" is not null and "value of search_criteria_location_outcode" is null then 'searchCriteria.location.outcode' end,
        case when "text of search_criteria_location_post_town" is not null and "value of search_criteria_location_post_town" is null then 'searchCriteria.location.postTown' end,
        case when "text of search_criteria_location_postal_area" is not null and "value of search_criteria_location_postal_area" is null then 'searchCriteria.location.postalArea' end,
        case when "text of search_criteria_location_region" is not null and "value of search_criteria_location_region" is null then 'searchCriteria.location.region' end,
        case when "text of search_criteria_radius" is not null and "value of search_criteria_radius" is null then 'searchCriteria.radius' end,
        case when "text of search_criteria_minimum_bedrooms" is not null and "value of search_criteria_minimum_bedrooms" is null then 'searchCriteria.minimumBedrooms' end,
        case when "text of search_criteria_maximum_bedrooms" is not null and "value of search_criteria_maximum_bedrooms" is null then 'searchCriteria.maximumBedrooms' end,
        case when "text of search_criteria_minimum_price" is not null and "value of search_criteria_minimum_price" is null then 'searchCriteria.minimumPrice' end,
        case when "text of search_criteria_maximum_price" is not null and "value of search_criteria_maximum_price" is null then 'searchCriteria.maximumPrice' end,
        case when "text of search_criteria_price_frequency" is not null and "value of search_criteria_price_frequency" is null then 'searchCriteria.priceFrequency' end,
        case when "text of search_criteria_property_type" is not null and "value of search_criteria_property_type" is null then 'searchCriteria.propertyType' end,
        case when "text of search_criteria_property_sub_type" is not null and "value of search_criteria_property_sub_type" is null then 'searchCriteria.propertySubType' end,
        case when "text of listing_details_id" is not null and "value of listing_details_id" is null then 'listingDetails.id' end,
        case when "text of listing_details_branch_id" is not null and "value of listing_details_branch_id" is null then 'listingDetails.branchId' end,
        case when "text of listing_details_bedrooms" is not null and "value of listing_details_bedrooms" is null then 'listingDetails.bedrooms' end,
        case when "text of listing_details_bathrooms" is not null and "value of listing_details_bathrooms" is null then 'listingDetails.bathrooms' end,
        case when "text of listing_details_receptions" is not null and "value of listing_details_receptions" is null then 'listingDetails.receptions' end,
        case when "text of listing_details_life_cycle_status" is not null and "value of listing_details_life_cycle_status" is null then 'listingDetails.lifeCycleStatus' end,
        case when "text of listing_details_address_property_number_or_name" is not null and "value of listing_details_address_property_number_or_name" is null then 'listingDetails.address.propertyNumberOrName' end,
        case when "text of listing_details_address_street_name" is not null and "value of listing_details_address_street_name" is null then 'listingDetails.address.streetName' end,
        case when "text of listing_details_address_locality" is not null and "value of listing_details_address_locality" is null then 'listingDetails.address.locality' end,
        case when "text of listing_details_address_town_or_city" is not null and "value of listing_details_address_town_or_city" is null then 'listingDetails.address.townOrCity' end,
        case when "text of listing_details_address_postcode" is not null and "value of listing_details_address_postcode" is null then 'listingDetails.address.postcode' end,
        case when "text of listing_details_address_country_code" is not null and "value of listing_details_address_country_code" is null then 'listingDetails.address.countryCode' end,
        case when "text of listing_details_pricing_transaction_type" is not null and "value of listing_details_pricing_transaction_type" is null then 'listingDetails.pricing.transactionType' end,
        case when "text of listing_details_pricing_currency_code" is not null and "value of listing_details_pricing_currency_code" is null then 'listingDetails.pricing.currencyCode' end,
        case when "text of listing_details_pricing_price" is not null and "value of listing_details_pricing_price" is null then 'listingDetails.pricing.price' end,
        case when "text of listing_details_pricing_rent_frequency" is not null and "value of listing_details_pricing_rent_frequency" is null then 'listingDetails.pricing.rentFrequency' end,
        case when "text of listing_details_estimate_lower_range" is not null and "value of listing_details_estimate_lower_range" is null then 'listingDetails.estimate.lowerRange' end,
        case when "text of listing_details_estimate_upper_range" is not null and "value of listing_details_estimate_upper_range" is null then 'listingDetails.estimate.upperRange' end,
        case when "text of listing_details_estimate_value" is not null and "value of listing_details_estimate_value" is null then 'listingDetails.estimate.value' end,
        case when "text of listing_details_estimate_confidence" is not null and "value of listing_details_estimate_confidence" is null then 'listingDetails.estimate.confidence' end,
        case when "text of listing_details_estimate_confidence_band" is not null and "value of listing_details_estimate_confidence_band" is null then 'listingDetails.estimate.confidenceBand' end,
        case when "text of listing_details_property_id" is not null and "value of listing_details_property_id" is null then 'listingDetails.propertyId' end,
        case when "text of listing_details_uprn" is not null and "value of listing_details_uprn" is null then 'listingDetails.uprn' end,
        case when "text of listing_details_property_type" is not null and "value of listing_details_property_type" is null then 'listingDetails.propertyType' end,
        case when "text of listing_details_source_branch_id" is not null and "value of listing_details_source_branch_id" is null then 'listingDetails.sourceBranchId' end,
        case when "text of listing_details_source_id" is not null and "value of listing_details_source_id" is null then 'listingDetails.sourceId' end,
        case when "text of listing_details_url" is not null and "value of listing_details_url" is null then 'listingDetails.url' end,
        case when item."contact" is not null and coalesce("text of contact_first_name", "text of contact_last_name", "text of contact_phone_number", "text of contact_email", "text of contact_preferences_method", "text of contact_preferences_time") is null and json_type(doc, '/contact') <> 'OBJECT' then 'contact' end,
        case when item."contact"."preferences" is not null and coalesce("text of contact_preferences_method", "text of contact_preferences_time") is null and json_type(doc, '/contact/preferences') <> 'OBJECT' then 'contact.preferences' end,
        case when item."searchCriteria" is not null and coalesce("text of search_criteria_location_alias", "text of search_criteria_location_area", "text of search_criteria_location_area_street", "text of search_criteria_location_country", "text of search_criteria_location_country_code", "text of search_criteria_location_county_area", "text of search_criteria_location_district", "text of search_criteria_location_incode", "text of search_criteria_location_outcode", "text of search_criteria_location_post_town", "text of search_criteria_location_postal_area", "text of search_criteria_location_region", "text of search_criteria_radius", "text of search_criteria_minimum_bedrooms", "text of search_criteria_maximum_bedrooms", "text of search_criteria_minimum_price", "text of search_criteria_maximum_price", "text of search_criteria_price_frequency", "text of search_criteria_property_type", "text of search_criteria_property_sub_type") is null and json_type(doc, '/searchCriteria') <> 'OBJECT' then 'searchCriteria' end,
        case when item."searchCriteria"."location" is not null and coalesce("text of search_criteria_location_alias", "text of search_criteria_location_area", "text of search_criteria_location_area_street", "text of search_criteria_location_country", "text of search_criteria_location_country_code", "text of search_criteria_location_county_area", "text of search_criteria_location_district", "text of search_criteria_location_incode", "text of search_criteria_location_outcode", "text of search_criteria_location_post_town", "text of search_criteria_location_postal_area", "text of search_criteria_location_region") is null and json_type(doc, '/searchCriteria/location') <> 'OBJECT' then 'searchCriteria.location' end,
        case when item."listingDetails" is not null and coalesce("text of listing_details_id", "text of listing_details_branch_id", "text of listing_details_bedrooms", "text of listing_details_bathrooms", "text of listing_details_receptions", "text of listing_details_life_cycle_status", "text of listing_details_address_property_number_or_name", "text of listing_details_address_street_name", "text of listing_details_address_locality", "text of listing_details_address_town_or_city", "text of listing_details_address_postcode", "text of listing_details_address_country_code", "text of listing_details_pricing_transaction_type", "text of listing_details_pricing_currency_code", "text of listing_details_pricing_price", "text of listing_details_pricing_rent_frequency", "text of listing_details_estimate_lower_range", "text of listing_details_estimate_upper_range", "text of listing_details_estimate_value", "text of listing_details_estimate_confidence", "text of listing_details_estimate_confidence_band", "text of listing_details_property_id", "text of listing_details_uprn", "text of listing_details_property_type", "text of listing_details_source_branch_id", "text of listing_details_source_id", "text of listing_details_url", item."listingDetails"."images"::varchar) is null and json_type(doc, '/listingDetails') <> 'OBJECT' then 'listingDetails' end,
        case when item."listingDetails"."address" is not null and coalesce("text of listing_details_address_property_number_or_name", "text of listing_details_address_street_name", "text of listing_details_address_locality", "text of listing_details_address_town_or_city", "text of listing_details_address_postcode", "text of listing_details_address_country_code") is null and json_type(doc, '/listingDetails/address') <> 'OBJECT' then 'listingDetails.address' end,
        case when item."listingDetails"."pricing" is not null and coalesce("text of listing_details_pricing_transaction_type", "text of listing_details_pricing_currency_code", "text of listing_details_pricing_price", "text of listing_details_pricing_rent_frequency") is null and json_type(doc, '/listingDetails/pricing') <> 'OBJECT' then 'listingDetails.pricing' end,
        case when item."listingDetails"."estimate" is not null and coalesce("text of listing_details_estimate_lower_range", "text of listing_details_estimate_upper_range", "text of listing_details_estimate_value", "text of listing_details_estimate_confidence", "text of listing_details_estimate_confidence_band") is null and json_type(doc, '/listingDetails/estimate') <> 'OBJECT' then 'listingDetails.estimate' end,
        case when not starts_with(item."viewingTimes"::varchar, '[') then 'viewingTimes' end,
        case when not starts_with(item."listingDetails"."images"::varchar, '[') then 'listingDetails.images' end,
        case when extra is not null and extra_json is null then '_extra' end], lambda problem: problem is not null) else [] end,
            case when has_more then flatten([case when may_repeat(keys[1]) then list_transform(repeated(keys[1]), lambda key: '' || key) else [] end,
        case when may_repeat(keys[2]) then list_transform(repeated(keys[2]), lambda key: 'contact.' || key) else [] end,
        case when may_repeat(keys[3]) then list_transform(repeated(keys[3]), lambda key: 'contact.preferences.' || key) else [] end,
        case when may_repeat(keys[4]) then list_transform(repeated(keys[4]), lambda key: 'searchCriteria.' || key) else [] end,
        case when may_repeat(keys[5]) then list_transform(repeated(keys[5]), lambda key: 'searchCriteria.location.' || key) else [] end,
        case when may_repeat(keys[6]) then list_transform(repeated(keys[6]), lambda key: 'listingDetails.' || key) else [] end,
        case when may_repeat(keys[7]) then list_transform(repeated(keys[7]), lambda key: 'listingDetails.address.' || key) else [] end,
        case when may_repeat(keys[8]) then list_transform(repeated(keys[8]), lambda key: 'listingDetails.pricing.' || key) else [] end,
        case when may_repeat(keys[9]) then list_transform(repeated(keys[9]), lambda key: 'listingDetails.estimate.' || key) else [] end]) end
        ) as problems
    from checked
)
select
    lead_id,
    coalesce(local_time("value of created_at")::date, day) as lead_day,
    scope,
    fetched_at,
    sequence,
    source,
    day as window_day,
    "value of created_at" as "created_at",
        "value of contact_first_name" as "contact_first_name",
        "value of contact_last_name" as "contact_last_name",
        "value of contact_phone_number" as "contact_phone_number",
        "value of contact_email" as "contact_email",
        "value of contact_preferences_method" as "contact_preferences_method",
        "value of contact_preferences_time" as "contact_preferences_time",
        "value of intent" as "intent",
        "value of enquiry_type" as "enquiry_type",
        "value of message" as "message",
        "value of property_use" as "property_use",
        "value of is_overseas" as "is_overseas",
        "value of portal_lead_id" as "portal_lead_id",
        "value of portal_branch_id" as "portal_branch_id",
        "value of portal_company_id" as "portal_company_id",
        "value of portal_group_id" as "portal_group_id",
        "value of source_branch_id" as "source_branch_id",
        "value of recipient_email" as "recipient_email",
        "value of lead_source" as "lead_source",
        "value of portal_source" as "portal_source",
        "value of organise_viewing" as "organise_viewing",
        "value of request_property_details" as "request_property_details",
        "value of consumer_situation" as "consumer_situation",
        "value of consumer_postcode" as "consumer_postcode",
        "value of search_criteria_location_alias" as "search_criteria_location_alias",
        "value of search_criteria_location_area" as "search_criteria_location_area",
        "value of search_criteria_location_area_street" as "search_criteria_location_area_street",
        "value of search_criteria_location_country" as "search_criteria_location_country",
        "value of search_criteria_location_country_code" as "search_criteria_location_country_code",
        "value of search_criteria_location_county_area" as "search_criteria_location_county_area",
        "value of search_criteria_location_district" as "search_criteria_location_district",
        "value of search_criteria_location_incode" as "search_criteria_location_incode",
        "value of search_criteria_location_outcode" as "search_criteria_location_outcode",
        "value of search_criteria_location_post_town" as "search_criteria_location_post_town",
        "value of search_criteria_location_postal_area" as "search_criteria_location_postal_area",
        "value of search_criteria_location_region" as "search_criteria_location_region",
        "value of search_criteria_radius" as "search_criteria_radius",
        "value of search_criteria_minimum_bedrooms" as "search_criteria_minimum_bedrooms",
        "value of search_criteria_maximum_bedrooms" as "search_criteria_maximum_bedrooms",
        "value of search_criteria_minimum_price" as "search_criteria_minimum_price",
        "value of search_criteria_maximum_price" as "search_criteria_maximum_price",
        "value of search_criteria_price_frequency" as "search_criteria_price_frequency",
        "value of search_criteria_property_type" as "search_criteria_property_type",
        "value of search_criteria_property_sub_type" as "search_criteria_property_sub_type",
        "value of listing_details_id" as "listing_details_id",
        "value of listing_details_branch_id" as "listing_details_branch_id",
        "value of listing_details_bedrooms" as "listing_details_bedrooms",
        "value of listing_details_bathrooms" as "listing_details_bathrooms",
        "value of listing_details_receptions" as "listing_details_receptions",
        "value of listing_details_life_cycle_status" as "listing_details_life_cycle_status",
        "value of listing_details_address_property_number_or_name" as "listing_details_address_property_number_or_name",
        "value of listing_details_address_street_name" as "listing_details_address_street_name",
        "value of listing_details_address_locality" as "listing_details_address_locality",
        "value of listing_details_address_town_or_city" as "listing_details_address_town_or_city",
        "value of listing_details_address_postcode" as "listing_details_address_postcode",
        "value of listing_details_address_country_code" as "listing_details_address_country_code",
        "value of listing_details_pricing_transaction_type" as "listing_details_pricing_transaction_type",
        "value of listing_details_pricing_currency_code" as "listing_details_pricing_currency_code",
        "value of listing_details_pricing_price" as "listing_details_pricing_price",
        "value of listing_details_pricing_rent_frequency" as "listing_details_pricing_rent_frequency",
        "value of listing_details_estimate_lower_range" as "listing_details_estimate_lower_range",
        "value of listing_details_estimate_upper_range" as "listing_details_estimate_upper_range",
        "value of listing_details_estimate_value" as "listing_details_estimate_value",
        "value of listing_details_estimate_confidence" as "listing_details_estimate_confidence",
        "value of listing_details_estimate_confidence_band" as "listing_details_estimate_confidence_band",
        "value of listing_details_property_id" as "listing_details_property_id",
        "value of listing_details_uprn" as "listing_details_uprn",
        "value of listing_details_property_type" as "listing_details_property_type",
        "value of listing_details_source_branch_id" as "listing_details_source_branch_id",
        "value of listing_details_source_id" as "listing_details_source_id",
        "value of listing_details_url" as "listing_details_url",
    problems as _problems,
    extra_json as _extra,
    body as "text of the lead",
    item."viewingTimes"::varchar as "list of applicant_viewing_times",
    item."listingDetails"."images"::varchar as "list of applicant_listing_images"
from typed;

-- applicant_viewing_times, plain leads
with source as (
    select
        window_day, lead_id, unnest(range(len("elements of applicant_viewing_times")))::integer as position, unnest("elements of applicant_viewing_times") as item,
        unnest("extras of applicant_viewing_times") as extra, null::varchar as body
    from "applicant_leads"
    where len("elements of applicant_viewing_times") > 0),
texts as (
    select *,
        item."earliest" as "text of earliest",
        item."latest" as "text of latest"
    from source
),
cast_strictly as (
    select *,
        as_moment("text of earliest") as "value of earliest",
        as_moment("text of latest") as "value of latest",
        try_cast(extra as json) as extra_json
    from texts
),
typed as (
    select *,
        case when (null) is not null or extra is not null and extra_json is null or ("text of earliest" is null) <> ("value of earliest" is null) or ("text of latest" is null) <> ("value of latest" is null)
            then list_filter([null,
        case when "text of earliest" is not null and "value of earliest" is null and not starts_with("text of earliest", '0001-01-01T00:00') then 'earliest' end,
        case when "text of latest" is not null and "value of latest" is null and not starts_with("text of latest", '0001-01-01T00:00') then 'latest' end,
        case when extra is not null and extra_json is null then '_extra' end], lambda problem: problem is not null)
            else []::varchar[] end as problems
    from cast_strictly
)
select
    lead_id,
    position,
    "value of earliest" as "earliest",
        "value of latest" as "latest",
    problems as _problems,
    extra_json as _extra,
    window_day
from typed;

-- applicant_viewing_times, odd leads
with source as (
    select
        window_day, lead_id, unnest(range(len(docs)))::integer as position,
        unnest(docs) as doc, unnest(bodies) as body, unnest(extras) as extra_of_element
    from (
        select *,
            case
                when not regexp_matches("list of applicant_viewing_times", '"(?:earliest|latest)":[^"{\[tfn]') then docs
                when is_first then elements_of_applicant_viewing_times("text of the lead", len(docs))
            end as bodies,
            case
                when regexp_full_match("list of applicant_viewing_times", '\[(?:(?:\{(?:(?:"earliest":(?:"[^"\\]*"|true|false|null)|"latest":(?:"[^"\\]*"|true|false|null)),?)*\}|(?:"[^"\\]*"|true|false|null))(?:, ?)?)*\]') then null
                when is_first then extras_of_applicant_viewing_times("text of the lead", len(docs))
            end as extras
        from (
            select *,
                try(json_transform("list of applicant_viewing_times", '["JSON"]'))::varchar[] as docs,
                not list_has_any(_problems, ['viewingTimes']) as is_first
            from "applicant_leads"
        )
        where len(docs) > 0
    )),
parsed as (
    select *,
        try(json_transform(doc, '{"earliest": "VARCHAR", "latest": "VARCHAR"}')) as item,
        try(json_keys(doc, [''])) as keys
    from source
),
texts as (
    select *,
        item."earliest" as "text of earliest",
        item."latest" as "text of latest",
        coalesce(len(keys[1]) > (item."earliest" is not null)::integer + (item."latest" is not null)::integer, false) as has_more
    from parsed
),
cast_strictly as (
    select *,
        as_moment("text of earliest") as "value of earliest",
        as_moment("text of latest") as "value of latest",
        case when has_more and (case when keys[1][-1] in ('earliest', 'latest') then not list_has_all(['earliest', 'latest'], keys[1]) else len(keys[1]) > 0 end)
            then coalesce(extra_of_element, '') end as extra
    from texts
),
checked as (
    select *, try_cast(extra as json) as extra_json
    from cast_strictly
),
typed as (
    select *,
        list_concat(
            case when (case when coalesce("text of earliest", "text of latest") is null and json_type(doc) is distinct from 'OBJECT' then 'not an object' end) is not null or extra is not null and extra_json is null or ("text of earliest" is null) <> ("value of earliest" is null) or ("text of latest" is null) <> ("value of latest" is null)
                then list_filter([case when coalesce("text of earliest", "text of latest") is null and json_type(doc) is distinct from 'OBJECT' then 'not an object' end,
        case when "text of earliest" is not null and "value of earliest" is null and not starts_with("text of earliest", '0001-01-01T00:00') then 'earliest' end,
        case when "text of latest" is not null and "value of latest" is null and not starts_with("text of latest", '0001-01-01T00:00') then 'latest' end,
        case when extra is not null and extra_json is null then '_extra' end], lambda problem: problem is not null) else [] end,
            case when has_more then flatten([case when may_repeat(keys[1]) then list_transform(repeated(keys[1]), lambda key: '' || key) else [] end]) end
        ) as problems
    from checked
)
select
    lead_id,
    position,
    "value of earliest" as "earliest",
        "value of latest" as "latest",
    problems as _problems,
    extra_json as _extra,
    window_day
from typed;

-- applicant_listing_images, plain leads
with source as (
    select
        window_day, lead_id, unnest(range(len("elements of applicant_listing_images")))::integer as position, unnest("elements of applicant_listing_images") as item,
        unnest("extras of applicant_listing_images") as extra, null::varchar as body
    from "applicant_leads"
    where len("elements of applicant_listing_images") > 0),
texts as (
    select *,
        item."original" as "value of original",
        item."cdnUrl" as "value of cdn_url",
        item."filename" as "value of filename"
    from source
),
cast_strictly as (
    select *,
        try_cast(extra as json) as extra_json
    from texts
),
typed as (
    select *,
        case when (null) is not null or extra is not null and extra_json is null
            then list_filter([null,
        case when extra is not null and extra_json is null then '_extra' end], lambda problem: problem is not null)
            else []::varchar[] end as problems
    from cast_strictly
)
select
    lead_id,
    position,
    "value of original" as "original",
        "value of cdn_url" as "cdn_url",
        "value of filename" as "filename",
    problems as _problems,
    extra_json as _extra,
    window_day
from typed;

-- applicant_listing_images, odd leads
with source as (
    select
        window_day, lead_id, unnest(range(len(docs)))::integer as position,
        unnest(docs) as doc, unnest(bodies) as body, unnest(extras) as extra_of_element
    from (
        select *,
            case
                when not regexp_matches("list of applicant_listing_images", '"(?:original|cdnUrl|filename)":[^"{\[tfn]') then docs
                when is_first then elements_of_applicant_listing_images("text of the lead", len(docs))
            end as bodies,
            case
                when regexp_full_match("list of applicant_listing_images", '\[(?:(?:\{(?:(?:"original":(?:"[^"\\]*"|true|false|null)|"cdnUrl":(?:"[^"\\]*"|true|false|null)|"filename":(?:"[^"\\]*"|true|false|null)),?)*\}|(?:"[^"\\]*"|true|false|null))(?:, ?)?)*\]') then null
                when is_first then extras_of_applicant_listing_images("text of the lead", len(docs))
            end as extras
        from (
            select *,
                try(json_transform("list of applicant_listing_images", '["JSON"]'))::varchar[] as docs,
                not list_has_any(_problems, ['listingDetails', 'listingDetails.images']) as is_first
            from "applicant_leads"
        )
        where len(docs) > 0
    )),
parsed as (
    select *,
        try(json_transform(doc, '{"original": "VARCHAR", "cdnUrl": "VARCHAR", "filename": "VARCHAR"}')) as item,
        try(json_keys(doc, [''])) as keys
    from source
),
texts as (
    select *,
        item."original" as "text of original",
        item."cdnUrl" as "text of cdn_url",
        item."filename" as "text of filename",
        coalesce(len(keys[1]) > (item."original" is not null)::integer + (item."cdnUrl" is not null)::integer + (item."filename" is not null)::integer, false) as has_more
    from parsed
),
cast_strictly as (
    select *,
        as_text("text of original", json_type(doc, '/original'), written(body, '/original')) as "value of original",
        as_text("text of cdn_url", json_type(doc, '/cdnUrl'), written(body, '/cdnUrl')) as "value of cdn_url",
        as_text("text of filename", json_type(doc, '/filename'), written(body, '/filename')) as "value of filename",
        case when has_more and (case when keys[1][-1] in ('original', 'cdnUrl', 'filename') then not list_has_all(['original', 'cdnUrl', 'filename'], keys[1]) else len(keys[1]) > 0 end)
            then coalesce(extra_of_element, '') end as extra
    from texts
),
checked as (
    select *, try_cast(extra as json) as extra_json
    from cast_strictly
),
typed as (
    select *,
        list_concat(
            case when (case when coalesce("text of original", "text of cdn_url", "text of filename") is null and json_type(doc) is distinct from 'OBJECT' then 'not an object' end) is not null or extra is not null and extra_json is null or ("text of original" is null) <> ("value of original" is null) or ("text of cdn_url" is null) <> ("value of cdn_url" is null) or ("text of filename" is null) <> ("value of filename" is null)
                then list_filter([case when coalesce("text of original", "text of cdn_url", "text of filename") is null and json_type(doc) is distinct from 'OBJECT' then 'not an object' end,
        case when "text of original" is not null and "value of original" is null then 'original' end,
        case when "text of cdn_url" is not null and "value of cdn_url" is null then 'cdnUrl' end,
        case when "text of filename" is not null and "value of filename" is null then 'filename' end,
        case when extra is not null and extra_json is null then '_extra' end], lambda problem: problem is not null) else [] end,
            case when has_more then flatten([case when may_repeat(keys[1]) then list_transform(repeated(keys[1]), lambda key: '' || key) else [] end]) end
        ) as problems
    from checked
)
select
    lead_id,
    position,
    "value of original" as "original",
        "value of cdn_url" as "cdn_url",
        "value of filename" as "filename",
    problems as _problems,
    extra_json as _extra,
    window_day
from typed;

