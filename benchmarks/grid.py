"""Grid: a table as text, once, for the terminal and for README.md."""

from __future__ import annotations

import attrs
from rich.box import SIMPLE_HEAD
from rich.console import JustifyMethod
from rich.table import Table

from .summary import Figure


@attrs.frozen
class Grid:
    """A title, a head and lines of text; the first column is left-aligned, and the last."""

    title: str
    head: tuple[str, ...]
    lines: tuple[tuple[str, ...], ...]

    def to_rich(self) -> Table:
        """For a terminal."""
        table = Table(title=self.title, title_justify="left", box=SIMPLE_HEAD)
        for position, column in enumerate(self.head):
            side: JustifyMethod = "left" if self._is_text(position) else "right"
            table.add_column(column, justify=side, no_wrap=True)
        for line in self.lines:
            table.add_row(*line)
        return table

    def to_markdown(self, said: str = "") -> str:
        """For README.md; `said` stands between the title and the table."""
        rules = ["---" if self._is_text(at) else "---:" for at in range(len(self.head))]
        lines = [self.head, rules, *self.lines]
        above = [f"**{self.title}**", "", *([said, ""] if said else [])]
        return "\n".join([*above, *(f"| {' | '.join(line)} |" for line in lines)])

    def _is_text(self, position: int) -> bool:
        return position in (0, len(self.head) - 1)


def times(figure: Figure | None) -> str:
    """A ratio, or that there is none."""
    return "–" if figure is None else f"{figure.median:.2f}"
