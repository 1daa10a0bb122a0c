"""reports/leads.html: one page of figures from the marts, for a laptop and a phone, that asks nothing of any network.

Belongs here: what it shows, and how that looks. Doesn't: its queries (sql/report/), the headline (figures.py). It reads
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

from leads_pipeline.duck import statement
from leads_pipeline.durable import replace_file
from leads_pipeline.lake import Lake
from leads_pipeline.report.figures import FIGURE_DAYS, headline
from leads_pipeline.warehouse import Reader

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


@dataclass(frozen=True, slots=True)
class Report:
    """The page as written: where, how many bytes, and its headline figures by name, as of `last_day`."""

    path: Path
    size_bytes: int
    last_day: date
    figures: dict[str, int]


def write_report(db: Reader, lake: Lake) -> Report:
    """Write reports/leads.html from the published file, whole or not at all. Raises StorageError."""
    _, [(last_day,)] = db.query("select max(day) from mart_coverage where is_configured")
    figures = headline(db)
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
        days=FIGURE_DAYS,
        last_day=last_day,
        figures=figures,
        script=get_plotlyjs(),
        charts={name: _html(name, chart) if chart else None for name, chart in charts.items()},
        listings=db.query(statement("report/listings"), {"shown": _LISTINGS_SHOWN})[1],
        states=_STATES,
        coverage=_coverage(db),
        drift=db.query(statement("report/drift"), {"shown": _CHANGES_SHOWN})[1],
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
    parameters = {"days": FIGURE_DAYS, "shown": _BRANCHES_SHOWN, "others": _OTHERS}
    rows = db.query(statement("report/daily"), parameters)[1]
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
    rows = db.query(statement("report/hourly"))[1]
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
    rows = db.query(statement("report/mix"), {"days": FIGURE_DAYS})[1]
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
    rows = db.query(statement("report/bands"))[1]
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
    for kind, scope, state, windows in db.query(statement("report/coverage"))[1]:
        found.setdefault((scope, kind), {"scope": scope, "kind": kind})[state] = windows
    return list(found.values())
