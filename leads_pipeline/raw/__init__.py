"""Durable bytes of a data folder: a store of files, and everything that lies in it.

`data = leads_pipeline.raw.data_folder.DataFolder.of(settings)` gives all of it:

    data.raw.land(…), .add(…), .fail(…)    a whole answer, pushed leads, a failure; window_table has the states
    data.raw.rewrite(place, change)        takes rows out or changes them; raw.list_places(data.store) names the places
    data.gate                              what may lie in raw, and who may be shown; a feature brings it
    data.quarantine                        damaged files with their windows, answers that couldn't be read
    data.state                             locks, origin, start date, key of people, when something landed or started
    data.want_format(), .note_format()     the number that says which versions work with the folder
    data.share()                           what machines of a bucket agree on

Doesn't belong here: fetching, reading what a lead says, publishing, Dagster.
"""
