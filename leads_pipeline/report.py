"""reports/leads.html: one page of figures from the marts, for a laptop and a phone, that asks nothing of any network.

Belongs here: which figures it shows, from which query, and how they look. Doesn't: what a mart counts (sql/). It reads
marts alone, which hold no personal data; the template escapes every text.
"""

from dataclasses import dataclass
from datetime import date
from html import escape
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from plotly import graph_objects as go
from plotly.offline import get_plotlyjs
from plotly.subplots import make_subplots

from leads_pipeline.durable import replace_file
from leads_pipeline.lake import Lake
from leads_pipeline.warehouse import Reader

REPORT_DAYS: Final = 30

# More colours than these can't be told apart; further branches are shown as one.
_BRANCHES_SHOWN: Final = 7
_OTHERS: Final = "others"
_LISTINGS_SHOWN: Final = 10
_CHANGES_SHOWN: Final = 20

# Okabe and Ito's colours, told apart by colour-blind people too; the last is for `others`.
_COLOURS: Final = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442", "#9aa3ad")
_INK: Final = "#1f2933"
_WEEKDAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_STATES: Final = ("landed", "empty", "open", "partial", "damaged", "failed", "missing")

_HEADLINE: Final = """
with last as (select max(day) as day from mart_coverage where is_configured),
daily as (select * from mart_leads_daily, last where lead_day > last.day - $days::integer)
select
    (select day from last) as last_day,
    (select coalesce(sum(leads), 0)::bigint from daily where kind = 'applicant') as applicant_leads,
    (select coalesce(sum(leads), 0)::bigint from daily where kind = 'appraisal') as appraisal_leads,
    (select count(*) from mart_people, last where last_lead_day > last.day - $days::integer) as people,
    (select count(*) from mart_people, last where leads > 1 and last_lead_day > last.day - $days::integer)
        as returning_people,
    (select count(*) from mart_hidden_valuations, last where lead_day > last.day - $days::integer)
        as hidden_valuations,
    (select count(*) from mart_coverage where is_configured and state in ('damaged', 'failed', 'missing'))
        as windows_not_landed,
    (select count(*) from drift) as contract_changes
"""

_DAILY: Final = """
with last as (select max(day) as day from mart_coverage where is_configured),
recent as (select mart_leads_daily.* from mart_leads_daily, last where lead_day > last.day - $days::integer),
ranked as (
    select scope, row_number() over (order by sum(leads) desc, scope) as rank from recent group by scope
)
select kind, if(rank <= $shown, scope, $others) as branch, lead_day, sum(leads)::bigint as leads
from recent join ranked using (scope)
group by all
order by kind, min(rank), lead_day
"""

_HOURLY: Final = "select weekday, hour, sum(leads)::bigint as leads from mart_hourly group by all"

_MIX: Final = """
with last as (select max(day) as day from mart_coverage where is_configured)
select market, situation, leads
from (
    select market, situation, sum(leads)::bigint as leads
    from mart_enquiry_mix, last
    where lead_day > last.day - $days::integer
    group by all
)
order by sum(leads) over (partition by situation), situation
"""

_BANDS: Final = """
select market, price_band, sum(leads)::bigint as leads
from mart_listing_demand
where price_band is not null and market <> 'unknown'
group by market, price_band, price_band_from
order by market, price_band_from
"""

_LISTINGS: Final = """
select listing_id, scope, property_type, bedrooms, town, price, rent_frequency, leads, viewings
from mart_listing_demand
order by leads desc, listing_id
limit $shown
"""

_COVERAGE: Final = """
select kind, scope, state, count(*) from mart_coverage where is_configured group by all order by scope, kind
"""

_DRIFT: Final = """
select kind, change, field, value, first_seen_day, leads, declaration
from drift
order by first_seen_day desc, leads desc, kind, field
limit $shown
"""


@dataclass(frozen=True, slots=True)
class Report:
    """The page as written: where, how many bytes, and its headline figures by name, as of `last_day`."""

    path: Path
    size_bytes: int
    last_day: date
    figures: dict[str, int]


def write_report(db: Reader, lake: Lake) -> Report:
    """Write reports/leads.html from the published file, whole or not at all. Raises StorageError."""
    names, [headline] = db.query(_HEADLINE, {"days": REPORT_DAYS})
    last_day, *numbers = headline
    figures = dict(zip(names[1:], numbers, strict=True))
    charts = {
        "daily": _daily(db),
        "hourly": _hourly(db),
        "mix": _mix(db),
        "bands": _bands(db),
    }
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    content = environment.get_template("report.html.jinja").render(
        days=REPORT_DAYS,
        last_day=last_day,
        figures=figures,
        script=get_plotlyjs(),
        charts={name: _html(name, chart) if chart else None for name, chart in charts.items()},
        listings=db.query(_LISTINGS, {"shown": _LISTINGS_SHOWN})[1],
        states=_STATES,
        coverage=_coverage(db),
        drift=db.query(_DRIFT, {"shown": _CHANGES_SHOWN})[1],
    )
    path = lake.folder / "reports" / "leads.html"
    encoded = content.encode()
    replace_file(path, encoded)
    return Report(path, len(encoded), last_day, figures)


def _html(name: str, chart: go.Figure) -> str:
    return str(
        chart.to_html(
            full_html=False,
            include_plotlyjs=False,
            div_id=f"chart-{name}",
            config={"displayModeBar": False, "responsive": True, "showTips": False},
        )
    )


def _styled(chart: go.Figure, height: int) -> go.Figure:
    chart.update_layout(
        template="plotly_white",
        height=height,
        margin={"l": 8, "r": 8, "t": 28 if chart.layout.annotations else 8, "b": 8},
        font={"family": "system-ui, sans-serif", "size": 13, "color": _INK},
        legend={"orientation": "h", "yanchor": "top", "y": -0.12, "x": 0, "title": None},
        hoverlabel={"font": {"family": "system-ui, sans-serif"}},
        dragmode=False,  # a finger that moves the page must not zoom a chart
    )
    chart.update_xaxes(automargin=True, fixedrange=True)
    chart.update_yaxes(automargin=True, fixedrange=True)
    chart.update_annotations(font={"size": 13}, x=0, xanchor="left")
    return chart


def _daily(db: Reader) -> go.Figure | None:
    parameters = {"days": REPORT_DAYS, "shown": _BRANCHES_SHOWN, "others": _OTHERS}
    rows = db.query(_DAILY, parameters)[1]
    branches = list(dict.fromkeys(branch for _, branch, _, _ in rows if branch != _OTHERS))
    if not rows:
        return None
    chart = make_subplots(
        rows=2,
        shared_xaxes=True,
        vertical_spacing=0.12,
        row_heights=[0.6, 0.4],
        subplot_titles=["Applicants", "Appraisals"],
    )
    for number, branch in enumerate([*branches, _OTHERS]):
        for row, kind in enumerate(("applicant", "appraisal"), start=1):
            leads = {day: count for k, b, day, count in rows if (k, b) == (kind, branch)}
            if leads:
                chart.add_bar(
                    x=list(leads),
                    y=list(leads.values()),
                    name=branch,
                    legendgroup=branch,
                    showlegend=row == 1,
                    marker_color=_COLOURS[-1] if branch == _OTHERS else _COLOURS[number],
                    hovertemplate="%{x|%a %d %b}: %{y} leads",
                    row=row,
                    col=1,
                )
    chart.update_layout(barmode="stack", bargap=0.15)
    chart.update_xaxes(tickformat="%d %b", showgrid=False)
    chart.update_yaxes(rangemode="tozero", nticks=5, tickformat=",d")
    return _styled(chart, 460)


def _hourly(db: Reader) -> go.Figure | None:
    rows = db.query(_HOURLY)[1]
    if not rows:
        return None
    counts = {(weekday, hour): leads for weekday, hour, leads in rows}
    chart = go.Figure(
        go.Heatmap(
            x=list(range(24)),
            y=list(_WEEKDAYS),
            z=[[counts.get((weekday, hour), 0) for hour in range(24)] for weekday in range(1, 8)],
            colorscale=[[0, "#f3f6f9"], [0.5, "#56b4e9"], [1, "#0b3c5d"]],
            xgap=2,
            ygap=2,
            colorbar={
                "thickness": 10,
                "title": {"text": "leads", "side": "right", "font": {"size": 13}},
                "outlinewidth": 0,
            },
            hovertemplate="%{y} %{x}:00 to %{x}:59: %{z} leads<extra></extra>",
        )
    )
    chart.update_yaxes(autorange="reversed", showgrid=False)
    chart.update_xaxes(
        showgrid=False,
        tickvals=[0, 3, 6, 9, 12, 15, 18, 21],
        title={"text": "hour", "standoff": 4, "font": {"size": 13}},
    )
    return _styled(chart, 300)


def _mix(db: Reader) -> go.Figure | None:
    rows = db.query(_MIX, {"days": REPORT_DAYS})[1]
    if not rows:
        return None
    chart = go.Figure()
    for market, colour in zip(("sales", "lettings", "unknown"), (_COLOURS[0], _COLOURS[1], _COLOURS[-1]), strict=True):
        leads = {situation: count for m, situation, count in rows if m == market}
        if leads:
            chart.add_bar(
                y=[escape(situation, quote=False) for situation in leads],
                x=list(leads.values()),
                name=market,
                orientation="h",
                marker_color=colour,
                hovertemplate="%{y}: %{x} leads",
            )
    situations = list(dict.fromkeys(escape(situation, quote=False) for _, situation, _ in rows))
    chart.update_layout(barmode="stack", bargap=0.25, legend_traceorder="normal")
    chart.update_yaxes(categoryorder="array", categoryarray=situations, type="category", ticksuffix=" ")
    chart.update_xaxes(tickformat=",d", nticks=6)
    return _styled(chart, 120 + 28 * len(situations))


def _bands(db: Reader) -> go.Figure | None:
    rows = db.query(_BANDS)[1]
    markets = [market for market in ("sales", "lettings") if any(row[0] == market for row in rows)]
    if not rows:
        return None
    bands = {market: {band: leads for m, band, leads in rows if m == market} for market in markets}
    chart = make_subplots(
        rows=len(markets),
        subplot_titles=["Sales" if market == "sales" else "Lettings" for market in markets],
        row_heights=[len(bands[market]) + 1 for market in markets],
        vertical_spacing=0.12,
    )
    for number, market in enumerate(markets, start=1):
        chart.add_bar(
            y=list(bands[market]),
            x=list(bands[market].values()),
            orientation="h",
            marker_color=_COLOURS[number - 1],
            showlegend=False,
            hovertemplate="%{y}: %{x} leads<extra></extra>",
            row=number,
            col=1,
        )
    chart.update_yaxes(type="category", ticksuffix=" ")
    chart.update_xaxes(tickformat=",d", nticks=6)
    return _styled(chart, 120 + 26 * sum(map(len, bands.values())))


def _coverage(db: Reader) -> list[dict[str, Any]]:
    """One row per branch and kind, with how many windows are in which state."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for kind, scope, state, windows in db.query(_COVERAGE)[1]:
        found.setdefault((scope, kind), {"scope": scope, "kind": kind})[state] = windows
    return list(found.values())
