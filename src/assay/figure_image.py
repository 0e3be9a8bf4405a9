"""A figure as SVG whose ink and paper follow the reader's light or dark mode."""

import base64
import io
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure

INKS = {
    "#000000": ("--ink", "#000000", "#e8ebee"),
    "#ffffff": ("--paper", "#ffffff", "#15181b"),
    "#333333": ("--soft", "#333333", "#c9d1d9"),
    "#808080": ("--grey", "#767676", "#9aa4ae"),
    "#b0b0b0": ("--grid", "#b0b0b0", "#4a525b"),
    "#dddddd": ("--shade", "#dddddd", "#333a42"),
    "#cccccc": ("--edge", "#cccccc", "#4a525b"),
    "#0072b2": ("--blue", "#0072b2", "#56a8e0"),
}
"""Colours of matplotlib and of our figures that would vanish on dark paper; any other stays as it is."""

_USED = re.compile('(?<=[ :"])(?:' + "|".join(INKS) + ')(?=[;" ])')


def figure_address(figure: "Figure") -> str:
    """The figure as a data address; as a separate image, its ids cannot clash with another's."""
    return "data:image/svg+xml;base64," + base64.b64encode(figure_svg(figure).encode()).decode()


def figure_svg(figure: "Figure") -> str:
    """The figure as SVG: text as paths, nothing that changes from run to run."""
    import matplotlib

    buffer = io.StringIO()
    with matplotlib.rc_context({"svg.hashsalt": "assay", "svg.fonttype": "path"}):
        figure.savefig(buffer, format="svg", bbox_inches="tight", metadata={"Date": None})
    return _in_both_modes(buffer.getvalue())


def _in_both_modes(svg: str) -> str:
    """Colours in styles become variables; black is matplotlib's default and stands nowhere."""
    coloured = _USED.sub(lambda found: f"var({INKS[found.group()][0]})", svg)
    light, dark = (";".join(f"{ink[0]}:{ink[place]}" for ink in INKS.values()) for place in (1, 2))
    rules = f"svg{{fill:var(--ink);{light}}}@media(prefers-color-scheme:dark){{svg{{{dark}}}}}"
    return coloured.replace('<style type="text/css">', f'<style type="text/css">{rules}', 1)


def caption(figure: "Figure") -> str:
    """The titles in the figure, for people who cannot see it."""
    titles = [figure.get_suptitle(), *(axes.get_title() for axes in figure.axes)]
    return "; ".join(text for text in titles if text) or "figure"
