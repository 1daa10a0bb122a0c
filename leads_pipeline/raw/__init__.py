"""Durable bytes of a data folder: a store of files, and everything that lies in it.

`data = leads_pipeline.raw.data_folder.DataFolder.of(settings)` gives all of it:

    data.raw.land(…), .add(…), .fail(…)    a whole answer, pushed leads, a failure
    data.raw.rewrite(place, change)        takes rows out or changes them
    list_places(data.store)                the places that have raw files
    window_table(data.store, …)            the state of each window
    data.gate                              who may be in raw and be shown; a feature brings it
    data.quarantine                        damaged files, and answers that couldn't be read
    data.state                             locks, origin, start date, key of people, moments
    data.want_format(), .note_format()     the number that says which versions work with the folder
    data.exchange_with_bucket()            what machines of a bucket agree on

Doesn't belong here: fetching, reading what a lead says, publishing, Dagster.
"""
