"""A figure that matplotlib drew, as SVG on a page and as a PDF beside a table; its texts.

A figure is drawn once, in the light colours of ``templates/theme.css``. On a page it is SVG: its
colours are the theme's variables, so that it turns dark with the page, its text stays text, and it
has no ids, so that a page can hold any number of figures. Its PDF embeds its fonts. Names in a
figure are shown literally: neither markup nor mathematics is interpreted.

matplotlib takes half a second to import, so it is imported only where a figure is drawn.
"""

from __future__ import annotations

import io
import re
import unicodedata
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

from markupsafe import Markup

from cfaug.core.outputs import remove_output
from cfaug.report.page import TEMPLATES, write_page

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.text import Text

THEME = (TEMPLATES / "theme.css").read_text(encoding="utf-8")

COLOURS = dict(re.findall(r"--(\w+): (#[0-9a-f]{6})", THEME.partition("}")[0]))
"""{variable of the theme: its value in the light theme}."""

STYLE: Any = {
    "figure.dpi": 72,  # a pixel is a point
    "figure.constrained_layout.use": True,
    "figure.constrained_layout.h_pad": 6 / 72,
    "lines.solid_capstyle": "butt",
    "font.family": ["DejaVu Sans"],  # comes with matplotlib, and is wider than a page's fonts
    "font.size": 12,
    "text.color": COLOURS["ink"],
    "text.parse_math": False,
    "svg.fonttype": "none",
    "svg.hashsalt": "cfaug",
    "pdf.fonttype": 42,
}

WIDEST, WIDEST_BESIDE = 0.95, 0.8
"""Shares of a figure's width that a line of a title, and one that has axes beside it, may take."""


NOTE = "note: "
"""Begins the group id of an artist with a note, which becomes a ``<title>``."""


@contextmanager
def style() -> Iterator[None]:
    """Draw in the style of this module, whatever the user's ``matplotlibrc`` says; a decorator.

    A name may hold letters that matplotlib's font lacks. A page shows them in the reader's fonts
    and a PDF shows boxes, without a warning for each.
    """
    import matplotlib

    with matplotlib.rc_context(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(STYLE)
        yield


@dataclass(frozen=True)
class Drawing:
    """A figure after its layout; templates show it as SVG.

    Attributes:
        figure: matplotlib's figure, drawn under :func:`style`.
    """

    figure: Figure
    label: str

    @classmethod
    def of(cls, axes: Axes, label: str) -> Drawing:
        """Lay the figure of some axes out once, so that every format shows the same layout."""
        figure = axes.get_figure(root=True)
        assert figure is not None
        # Lines are broken by their number of letters, and capitals may be twice as wide as others:
        # beside such a line the axes would have no room.
        from matplotlib.text import Annotation, Text

        for text in figure.findobj(Text):
            assert isinstance(text, Text)
            share = WIDEST_BESIDE if isinstance(text, Annotation) else WIDEST
            most, width = share * figure.bbox.width, text.get_window_extent().width
            if width > most:
                text.set_fontsize(float(text.get_fontsize()) * most / width)
        figure.draw_without_rendering()
        figure.set_layout_engine("none")
        for title in (axes.xaxis.label, axes.title):
            title.set_x(title.get_position()[0] + overhang(title, figure) / axes.bbox.width)
        return cls(figure, printable(label))

    def __html__(self) -> str:
        return self.svg

    @cached_property
    def svg(self) -> Markup:
        """The figure as an element of a page."""
        return Markup(ElementTree.tostring(self._tree(), encoding="unicode"))

    def svg_file(self) -> str:
        """Return the figure as a file that stands by itself and follows the reader's theme."""
        tree = self._tree()
        tree.set("xmlns", "http://www.w3.org/2000/svg")
        theme = ElementTree.Element("style")
        theme.text = f"\n{THEME}svg {{ background: var(--paper); }}\n"
        tree.insert(0, theme)
        return ElementTree.tostring(tree, encoding="unicode") + "\n"

    @style()
    def pdf(self) -> bytes:
        """Return the figure as a PDF of one page, with the same bytes at any time and place."""
        file = io.BytesIO()
        self.figure.savefig(
            file, format="pdf", metadata={"CreationDate": None, "Title": self.label}
        )
        return file.getvalue()

    @style()
    def _tree(self) -> ElementTree.Element:
        file = io.StringIO()
        none = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        self.figure.savefig(file, format="svg", metadata=none)
        root = ElementTree.fromstring(file.getvalue())
        markers = {
            f"#{path.get('id')}": path.get("d", "") for path in root.iterfind(".//{*}defs/{*}path")
        }
        (tree,) = _clean(root, markers)
        tree.attrib = {
            "viewBox": root.get("viewBox", ""), "role": "img", "aria-label": self.label,
            "stroke-linejoin": "round",
        }  # fmt: skip
        return tree


def write_pdfs(drawings: Sequence[Drawing], folder: Path, stem: str) -> list[Path]:
    """Write ``<stem>-1.pdf`` and so on, in the order of the page; return the paths.

    The files of further figures, which an earlier version of the page had, are deleted.
    """
    files = [
        write_page(folder / f"{stem}-{number}.pdf", drawing.pdf())
        for number, drawing in enumerate(drawings, 1)
    ]
    number = len(files) + 1
    while (left := folder / f"{stem}-{number}.pdf").exists():
        remove_output(left, left.name)
        number += 1
    return files


def overhang(text: Text, area: Figure | Axes) -> float:
    """Return by how many pixels to move a text to the right so that it stays inside an area."""
    box, bounds = text.get_window_extent(), area.get_window_extent()
    return max(0.0, bounds.x0 - box.x0) or min(0.0, bounds.x1 - box.x1)


def _clean(node: ElementTree.Element, markers: Mapping[str, str]) -> Iterator[ElementTree.Element]:
    """Yield the parts of matplotlib's SVG that a page needs: no ids, no references, short numbers.

    Clipping goes with the ids: axes reach around all that they show. All markers are circles.
    """
    tag = node.tag.rpartition("}")[2]
    if tag == "defs":
        return
    children = [clean for child in node for clean in _clean(child, markers)]
    tooltip = node.get("id", "").partition(NOTE)[2]
    if tag == "g" and not tooltip:
        yield from children
        return
    element = ElementTree.Element(tag)
    element.text = node.text if tag == "text" else None
    if tooltip:
        ElementTree.SubElement(element, "title").text = tooltip
    geometry = ("d", "x", "y", "transform")
    kept = {name: value for name, value in node.items() if name in geometry}
    if tag == "use":
        path = markers[node.get("{http://www.w3.org/1999/xlink}href", "")].split()
        if path[:2] != ["M", "0"]:
            raise ValueError("a page shows only circles as markers")
        element.tag, kept = "circle", {"cx": kept["x"], "cy": kept["y"], "r": path[2]}

    def short(number: re.Match[str]) -> str:
        return f"{float(number[0]):.2f}".rstrip("0").rstrip(".")

    element.attrib = {name: re.sub(r"\d+\.\d+", short, value) for name, value in kept.items()}
    variables = {value: f"var(--{name})" for name, value in COLOURS.items()}
    css = node.get("style", "").replace("'DejaVu Sans'", "system-ui, sans-serif")
    element.set("style", re.sub(r"#[0-9a-f]{6}", lambda c: variables.get(c[0], c[0]), css))
    element.extend(children)
    yield element


MARKS = 3
"""The largest number of marks on a letter of a figure's label; Thai and Hebrew need as many."""


def wrap_text(text: str, width: int) -> list[str]:
    """Break a text into lines of at most ``width`` cells: at spaces, after commas, or anywhere.

    >>> wrap_text("cf_ratio=0.6,real=PHOTOS or more", 14)
    ['cf_ratio=0.6,', 'real=PHOTOS or', 'more']
    """
    from rich.cells import cell_len, chop_cells

    lines = [""]
    for word in re.findall(r"[^\s,]*(?:,+|\s|$)", printable(text)):
        whole = lines[-1] + word
        if cell_len(whole.rstrip()) <= width:
            lines[-1] = whole
            continue
        first, *more = chop_cells(word.rstrip(), width) or [""]
        lines += [first, *more]
        lines[-1] += " " * word.endswith(" ")
    return [line.rstrip() for line in lines if line.strip()] or [""]


def elide_text(text: str, width: int, most: int) -> list[str]:
    """Return the first lines of a wrapped text, the last of them with an ellipsis if more follow.

    Marks beyond ``MARKS`` on one letter are omitted: they take no cell, but pile up above it.

    Args:
        text: text to break, as by ``wrap_text``.

    >>> elide_text("one two three", 4, 2)
    ['one', 'two…']
    """
    lines = wrap_text(limit_marks(text), width)
    if len(lines) <= most:
        return lines
    return [*lines[: most - 1], wrap_text(lines[most - 1], width - 1)[0] + "…"]


def limit_marks(text: str) -> str:
    """Return a text without the marks beyond ``MARKS`` on one letter."""
    kept, marks = [], 0
    for letter in text:
        marks = marks + 1 if unicodedata.category(letter) in {"Mn", "Me"} else 0
        if marks <= MARKS:
            kept.append(letter)
    return "".join(kept)


def printable(text: str) -> str:
    """Return text without control characters: a name on disk may contain terminal codes."""
    return "".join(c if c.isprintable() else " " for c in text)
