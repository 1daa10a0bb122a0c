"""The pictures of the docs that show what is in the code, as SVG: tables and layers.

The others are drawn by hand, in the same style.
"""

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from typing import Final

# Where a box stands: column and row of the picture.
Places = Mapping[str, tuple[float, float]]
# From a box to another one, and what is written on the line.
Line = tuple[str, str, str]

_TABLES: Final[Places] = {
    "applicant_viewing_times": (0, 0),
    "applicant_listing_images": (0, 1),
    "applicant_leads": (1, 0.5),
    "appraisal_leads": (1, 2),
    "landed_windows": (1, 3),
    "lead_facts": (2, 1.5),
    "branches": (2, 3),
    "answers": (3, 0),
    "mart_people": (3, 1),
    "mart_listing_demand": (3, 2),
    "mart_lead_properties": (3, 3),
    "inventory": (3, 4),
}

# Many rows of the first table belong to one row of the second, by this column of both.
_JOINS: Final[tuple[Line, ...]] = (
    ("applicant_viewing_times", "applicant_leads", "lead_id"),
    ("applicant_listing_images", "applicant_leads", "lead_id"),
    ("applicant_leads", "lead_facts", "lead_id"),
    ("appraisal_leads", "lead_facts", "lead_id"),
    ("answers", "lead_facts", "lead_id"),
    ("lead_facts", "mart_people", "person"),
    ("lead_facts", "mart_listing_demand", "listing_id"),
    ("lead_facts", "branches", "scope"),
    ("landed_windows", "branches", "scope"),
    ("mart_lead_properties", "lead_facts", "lead_id"),
    ("mart_lead_properties", "inventory", "item_id"),
)


_FOLDERS: Final[Places] = {
    "features": (0, 0),
    "cli": (0, 1),
    "mail": (1, 1),
    "definitions": (1, 0),
    "orchestration": (2, 0),
    "health": (2, 1),
    "warehouse": (0, 3),
    "portal": (2, 3),
    "raw": (1, 4),
    "settings": (1, 5),
    "domain": (1, 6),
    "errors": (1, 7),
    "words": (0, 7),
    "extensions": (0, 6),
    "simulator": (2, 7),
}


_WIDTH = 190
_HEIGHT = 34
_ACROSS = 280
_DOWN = 80
_MARGIN = 20


def tables_diagram(columns: Mapping[str, AbstractSet[str]]) -> str:
    """Draw the tables.

    `columns` has the columns of each table. Raises KeyError if a join names another one.
    """
    for many, one, column in _JOINS:
        if column not in columns[many] & columns[one]:
            raise KeyError(f"{many} and {one} don't both have {column}")
    return _draw(_TABLES, _JOINS, "Tables, and the columns that join them")


def layers(imports: Iterable[tuple[str, str]]) -> str:
    """Draw the folders of the code. `imports` are pairs: the first imports the second."""
    lines = tuple((upper, lower, "") for upper, lower in imports)
    return _draw(_FOLDERS, lines, "The folders of the code: each imports from those below it")


def _draw(places: Places, lines: tuple[Line, ...], label: str) -> str:
    corners = {
        name: (_MARGIN + round(column * _ACROSS), _MARGIN + round(row * _DOWN))
        for name, (column, row) in places.items()
    }
    width = max(x for x, _ in corners.values()) + _WIDTH + _MARGIN
    height = max(y for _, y in corners.values()) + _HEIGHT + _MARGIN
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" '
        f'font-size="13" role="img" aria-label="{label}">',
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
    ]
    for start, end, words in lines:
        (x1, y1), (x2, y2) = (
            (x + _WIDTH // 2, y + _HEIGHT // 2) for x, y in (corners[start], corners[end])
        )
        parts.append(f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" stroke="#3b5b8c"/>')
        parts.append(_text((x1 + x2) // 2, (y1 + y2) // 2 - 5, words, "#5a6675"))
    for name, (x, y) in corners.items():
        parts.append(
            f'<rect x="{x}" y="{y}" width="{_WIDTH}" height="{_HEIGHT}" rx="4" fill="#eef3fb" stroke="#3b5b8c"/>'
        )
        parts.append(_text(x + _WIDTH // 2, y + 22, name, "#10243f"))
    return "\n".join([*parts, "</svg>", ""])


def _text(x: int, y: int, words: str, colour: str) -> str:
    return f'<text x="{x}" y="{y}" text-anchor="middle" fill="{colour}">{words}</text>'
