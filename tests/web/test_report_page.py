"""The page of `tradewind report --html` in a real browser."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

from tests.web.conftest import HOSTILE, Opened

NANO = Decimal(10) ** 9


def dollars(text: str) -> Decimal:
    plain = text.replace("$", "").replace(",", "")
    return Decimal(plain if plain not in ("", "-") else "0")


def test_the_page_is_one_file_that_asks_for_nothing_and_complains_of_nothing(opened: Opened) -> None:
    assert opened.asked == [opened.page.url]
    assert opened.page.url.startswith("file:")
    assert opened.page.locator("script, link, iframe, img, object").count() == 0
    assert opened.complaints == []


def test_a_name_that_is_markup_is_shown_as_the_text_that_it_is(opened: Opened) -> None:
    assert opened.page.get_by_role("rowheader", name=HOSTILE, exact=True).count() >= 1
    assert opened.page.locator("main script").count() == 0
    assert opened.complaints == []


def test_it_has_one_heading_and_every_table_has_a_caption_and_headers(opened: Opened) -> None:
    assert opened.page.locator("h1").count() == 1
    assert opened.page.locator("html").get_attribute("lang") == "en"
    for table in opened.page.locator("table").all():
        columns = table.locator("thead th[scope=col]").count()
        assert table.locator("caption").count() == 1
        assert columns > 0
        assert {row.locator("th,td").count() for row in table.locator("tbody tr").all()} <= {columns}
    for chart in opened.page.locator("svg").all():
        assert chart.locator("title").first.text_content()
        assert chart.get_attribute("role") == "img"


def test_totals_shown_are_the_sums_of_the_rows_shown(opened: Opened) -> None:
    opened.page.locator("details").evaluate_all("all => all.forEach(one => one.open = true)")
    jobs = opened.cells("Jobs;", "tbody tr")
    (total,) = opened.cells("Jobs;", "tfoot tr")
    head = opened.cells("Jobs;", "thead tr")[0]
    paid = head.index("paid")
    assert sum(dollars(row[paid]) for row in jobs) == dollars(total[paid])
    entries = opened.cells("Ledger entries", "tbody tr")
    (ledger_total,) = opened.cells("Ledger entries", "tfoot tr")
    assert len(entries) == len(opened.view.entries) > 0
    assert sum(dollars(row[-1]) for row in entries) == dollars(ledger_total[-1])
    assert dollars(ledger_total[-1]) == Decimal(opened.view.paid_nano_usd) / NANO


def test_paid_and_saved_is_what_it_would_have_cost_in_each_row_and_total_shown(opened: Opened) -> None:
    for sums in opened.view.totals:
        rows = opened.cells(f"Against {sums.name}", "tbody tr")
        total, left_out, in_all = opened.cells(f"Against {sums.name}", "tfoot tr")
        compared = [row for row in rows if not row[4].startswith("left out: ")]
        for row in (*compared, total):
            assert dollars(row[1]) + dollars(row[2]) == dollars(row[3])
        for column in (1, 2, 3):
            assert sum(dollars(row[column]) for row in compared) == dollars(total[column])
        assert left_out[4].split(", ") == [row[0] for row in rows if row not in compared] != []
        assert dollars(total[1]) + dollars(left_out[1]) == dollars(in_all[1])
        assert {row[0]: row[4] for row in compared} == {"gpt": "final", "conv": "provisional"}
        caption = opened.page.locator("caption", has_text=f"Against {sums.name}")
        assert sums.definition in (caption.text_content() or "")


def test_the_figures_at_the_top_add_up_and_say_what_is_not_in_them(opened: Opened) -> None:
    names = [each.replace("\xa0", " ") for each in opened.page.locator("header dt").all_text_contents()]
    values = opened.page.locator("header dd").all_text_contents()
    shown = dict(zip(names, values, strict=True))
    (paid,) = (dollars(value) for name, value in shown.items() if name.startswith("paid by 2 of 4"))
    (saved,) = (dollars(value.split()[0]) for name, value in shown.items() if name.startswith("+ saved"))
    assert any(name.endswith("so far") for name in names)
    assert paid + saved == dollars(shown["= same machine on demand"])
    assert shown["paid by 2 jobs that are left out"] == "$0.000000000"


def test_text_stands_out_from_its_ground(opened: Opened, tmp_path: Path) -> None:
    """WCAG 2.2 AA: 4.5 to 1, for everything that carries words."""
    worst = opened.page.evaluate(CONTRAST)
    assert worst["ratio"] >= 4.5, worst
    opened.page.screenshot(path=tmp_path / "report.png", full_page=True)
    assert (tmp_path / "report.png").stat().st_size > 10_000


def test_nothing_is_wider_than_the_window_also_on_a_telephone(opened: Opened) -> None:
    for width in (390, 1180):  # at the end as wide as it was
        opened.page.set_viewport_size({"width": width, "height": 800})
        assert opened.page.evaluate("document.documentElement.scrollWidth") <= width


CONTRAST = """() => {
  const canvas = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
  const rgba = css => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = css;
    canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data];
  };
  const light = ([r, g, b]) => [r, g, b].map(v => v / 255)
    .map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const ground = node => {
    for (; node; node = node.parentElement) {
      const color = rgba(getComputedStyle(node).backgroundColor);
      if (color[3] === 255) return color;
    }
    return [255, 255, 255];
  };
  let worst = {ratio: 99, text: ""};
  for (const node of document.querySelectorAll("body *:not(svg *)")) {
    const words = [...node.childNodes].filter(n => n.nodeType === 3).map(n => n.data.trim()).join("");
    if (!words) continue;
    const [a, b] = [light(rgba(getComputedStyle(node).color)), light(ground(node))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < worst.ratio) worst = {ratio, text: words};
  }
  return worst;
}"""
