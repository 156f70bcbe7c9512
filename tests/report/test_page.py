"""The page: one file, offline, that no text of the ledger can turn into something else."""

from __future__ import annotations

import re
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

from pump.errors import ConfigurationError
from pump.report import page as page_module
from pump.report.charts import moment, rate, seconds, share
from pump.report.duckdb_engine import duckdb_engine
from pump.report.job import Heading, Report, ReportOptions, run_report
from pump.report.page import rendered
from pump.report.source import ReportScope
from tests.ledger.support import a_row

from .generated import write_ledger

_VOID = {"meta", "br", "link", "img", "hr", "input"}
_ALLOWED = {
    *("html", "head", "meta", "title", "style", "body", "header", "nav", "main", "footer"),
    *("section", "h1", "h2", "h3", "p", "ul", "li", "a", "b", "br", "dl", "div", "dt", "dd"),
    *("small", "figure", "figcaption", "span", "i", "table", "caption", "thead", "tbody", "tr"),
    *("th", "td", "code", "details", "summary", "svg", "g", "rect", "line", "text", "polyline"),
    *("polygon", "circle"),
}


class Page(HTMLParser):
    """Elements, attributes and texts, with every element closed where it should be."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.ids: list[str] = []
        self.said = ""
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        self.ids += [value or "" for name, value in attrs if name == "id"]
        if tag not in _VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] != "style":
            self.said += data


def page_of(made: Report) -> Page:
    return Page(made.page.read_text(encoding="utf-8"))


def assert_harmless(page: Page) -> None:
    """Nothing is run, nothing is loaded, nothing leads away."""
    assert set(page.tags) <= _ALLOWED
    for name, value in page.attributes:
        assert not name.startswith("on")
        assert name not in ("src", "srcset", "xlink:href", "action", "data")
        if name == "href":
            assert value is not None
            assert value.removeprefix("#") in page.ids


def test_when_the_page_is_made_then_it_is_whole_and_needs_nothing_else(made: Report) -> None:
    """R78: one self-contained page that opens offline."""
    html = made.page.read_text(encoding="utf-8")

    page = Page(html)

    assert_harmless(page)
    assert "url(" not in html
    assert "@import" not in html
    assert "default-src 'none'" in html
    assert "prefers-color-scheme:dark" in html
    assert page.tags.count("svg") > 4
    assert "TimeoutError: no answer from <url> within # s" in page.said


HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(1)>\"'&amp;</td></style>"


def test_when_texts_mean_harm_then_they_are_shown_as_texts(tmp_path: Path) -> None:
    """R78: an error's text, a type, a queue, a reason and an id may be anything."""
    rows = [
        a_row(
            message_id=f"{HOSTILE}{number}",
            type=f"{HOSTILE}T\u202e\x1b[31m",
            queue=f"{HOSTILE}Q",
            status="dead-lettered",
            reason=f"{HOSTILE}R",
            error_type=f"{HOSTILE}E",
            detail=f"{HOSTILE} password=hunter22 {number}",
            attempts=9,
        )
        for number in range(3)
    ]
    ledger = write_ledger(tmp_path / "led'ger <b>", rows)

    made = run_report(ReportOptions(ledger=ledger, out=tmp_path / "out"), duckdb_engine)

    page = page_of(made)
    assert_harmless(page)
    assert f"{HOSTILE}T\\u202e\\x1b[31m" in page.said
    assert "hunter22" not in page.said
    assert page.tags.count("script") == 0


def test_when_what_was_asked_for_means_harm_then_it_is_shown_as_text(made: Report) -> None:
    """R78: paths, types and reasons that stand in no row."""
    harm = f"{HOSTILE}\u202e password=hunter22"
    heading = Heading(
        ledger=harm,
        engine=harm,
        scope=ReportScope(types=(harm, harm)),
        made_at_s=0.0,
        skipped=((harm, harm),),
    )

    page = Page(rendered(made.results, heading))

    assert_harmless(page)
    assert page.said.count(f"{HOSTILE}\\u202e") == 6
    assert "hunter22" not in page.said
    assert page.tags.count("script") == 0


def test_when_a_value_is_no_markup_of_ours_then_the_template_escapes_it() -> None:
    """What passes as it is says so in the template: the style and two kinds of charts."""
    template = (Path(page_module.__file__).parent / "page.html.jinja").read_text(encoding="utf-8")

    passed = re.findall(r"\{\{ ([\w.]+)\|safe \}\}", template)

    assert sorted(passed) == ["cell.value", "found.chart", "style"]
    assert template.count("|safe") == len(passed)
    assert "autoescape" not in template


def test_when_jinja_is_not_installed_then_the_extra_is_named_before_anything_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)
    out = tmp_path / "out"

    with pytest.raises(ConfigurationError, match=r"pip install 'pumphouse\[report\]'"):
        run_report(ReportOptions(out=out), duckdb_engine)

    assert not out.exists()


def test_when_there_are_no_rows_then_there_is_a_page_all_the_same(tmp_path: Path) -> None:
    """R78: an empty ledger is no error."""
    ledger = tmp_path / "ledger"
    ledger.mkdir()

    made = run_report(ReportOptions(ledger=ledger, out=tmp_path / "out"), duckdb_engine)

    assert_harmless(page_of(made))
    assert made.totals["rows"] == 0
    assert "no outcomes" in page_of(made).said


@pytest.mark.parametrize("times", [[0], [2**62 // 1000, 0], [0, 253_402_300_799_000_000]])
def test_when_clocks_were_wrong_then_the_page_is_made_and_bounded(
    tmp_path: Path, times: list[int]
) -> None:
    """R78: a row from 1970 or from the far future spoils no page."""
    rows = [a_row(message_id=f"m-{n}", time=each) for n, each in enumerate(times)]
    ledger = write_ledger(tmp_path / "ledger", rows)

    made = run_report(ReportOptions(ledger=ledger, out=tmp_path / "out"), duckdb_engine)

    assert_harmless(page_of(made))
    assert made.page.stat().st_size < 1_000_000
    assert made.totals["rows"] == len(times)


def test_when_there_are_very_many_names_then_the_page_does_not_grow_with_them(
    tmp_path: Path,
) -> None:
    """R78: the page has the most frequent, the tables have more."""
    rows = [
        a_row(
            message_id=f"m-{n}",
            type=f"T{n}",
            queue=f"q{n}",
            status="retrying",
            detail=f"Error: {'x' * (n % 200)}y{'z' * (n // 200)}",
            attempts=7,
        )
        for n in range(1_000)
    ]
    ledger = write_ledger(tmp_path / "ledger", rows)

    made = run_report(ReportOptions(ledger=ledger, out=tmp_path / "out"), duckdb_engine)

    assert made.page.stat().st_size < 1_000_000
    assert (made.totals["clusters"], len(made.results["clusters"])) == (1_000, 200)
    assert len(re.findall("more rows? in ", page_of(made).said)) >= 4


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (share(0), "0 %"),
        (share(0.00001), "< 0.01 %"),
        (share(0.062), "6.2 %"),
        (share(0.99999), "> 99.99 %"),
        (share(1), "100 %"),
        (seconds(0), "0 s"),
        (seconds(0.000035), "35 µs"),
        (seconds(0.12), "120 ms"),
        (seconds(-1.5), "-1.5 s"),
        (seconds(150), "2.5 min"),
        (seconds(1e9), "11,574 d"),
        (rate(16.53), "16.5/s"),
        (rate(0.05), "3/min"),
        (rate(0.001), "3.6/h"),
        (moment(0), "1970-01-01 00:00:00"),
        (moment(-1), "-1 µs"),
        (moment(2**62), f"{2**62} µs"),
    ],
)
def test_when_values_are_shown_then_people_can_read_them(shown: str, expected: str) -> None:
    """R78: three digits and a unit."""
    assert shown == expected
