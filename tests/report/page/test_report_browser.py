"""The report in a real browser: it opens, sorts, filters, prints, and cuts nothing."""

import json

import pytest

from fedbb.report.groups import gather, group
from fedbb.report.method_comparison import (
    best_table,
    compare_methods,
    final_table,
)
from fedbb.report.page.report import write_report
from fedbb.report.results import read_run
from fedbb.report.text import metric_title, signed
from helpers.run_builder import Sketch, build_all

EVIL = """</script><!--<script>alert('x')</script>"><img src=x onerror=alert(1)>\u2028&amp;"""
SERIES = [(f"s{number}", 3) for number in range(8)]
LONG = "Überlänge" * 40


def luminance(color):
    """Return the relative luminance of WCAG 2 of an sRGB color in 0…255."""
    parts = [part / 255 for part in color]
    red, green, blue = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("width", [1280, 390])
def test_nothing_is_cut_and_nothing_complains(visit, report, width):
    with visit(report, width) as seen:
        seen.see_all()
        seen.unfold()
        seen.see_all()
        assert seen.cut() == []
        assert len(seen.page.query_selector_all(".plot svg")) == 12


def test_the_numbers_are_those_of_the_tables(visit, report, runs):
    parts = [compare_methods(one) for one in group(gather([runs]).runs)]
    with visit(report) as seen:
        for part in parts:
            title = part.comparison.title
            for sheet, table in (
                ("table-final", final_table(part.rows)),
                ("table-best", best_table(part.rows)),
            ):
                shown = [row[1:] for row in seen.rows(sheet) if row[0] == title]
                columns = [seen.head(sheet).index(name) - 1 for name in table.head]
                assert [tuple(row[at] for at in columns) for row in shown] == list(table.rows)
            shown = [row[1:] for row in seen.rows("table-differences") if row[0] == title]
            assert len(shown) == len(part.differences)
            for item, (method, against, metric, mean, interval, verdict, _) in zip(
                part.differences, shown, strict=True
            ):
                assert (method, against) == (item.method, item.against)
                assert metric == metric_title(item.metric)
                assert verdict == item.paired.verdict
                assert mean == signed(100 * item.paired.spread.mean)
                if "[" in item.text:
                    assert item.text.startswith(f"{mean} {interval}, {verdict}")


def test_the_verdict_is_told_in_words(visit, report, runs):
    parts = [compare_methods(one) for one in group(gather([runs]).runs)]
    with visit(report) as seen:
        told = seen.page.inner_text("#verdicts")
        assert all(sentence in told for part in parts for sentence in part.sentences)


def test_a_click_sorts_and_another_turns_the_order(visit, report):
    with visit(report) as seen:
        heading = seen.heading("table-final", "balanced accuracy")
        heading.click()
        numbers = [
            float(text.split()[0]) for text in seen.column("table-final", "balanced accuracy")
        ]
        assert numbers == sorted(numbers, reverse=True)
        assert seen.sorted_by("table-final") == [("balanced accuracy", "descending")]
        heading.click()
        texts = seen.column("table-final", "balanced accuracy")
        assert [float(text.split()[0]) for text in texts] == sorted(numbers)
        assert seen.sorted_by("table-final") == [("balanced accuracy", "ascending")]


def test_the_keyboard_sorts_and_undefined_cells_stay_last(visit, report):
    with visit(report) as seen:
        for _ in range(2):
            seen.heading("table-final", "AUROC").focus()
            seen.page.keyboard.press("Enter")
            assert seen.column("table-final", "AUROC")[-3:] == ["–"] * 3
        assert seen.sorted_by("table-final") == [("AUROC", "ascending")]


def test_filters_by_data_method_and_text_work_together(visit, report):
    with visit(report) as seen:
        everything = seen.rows("table-runs")
        seen.page.select_option("#by-method", "FedBB")
        assert set(seen.column("table-runs", "method")) == {"FedBB"}
        mosaic = next(title for title in seen.column("table-runs", "data") if "mosaic" in title)
        seen.page.select_option("#by-data", mosaic)
        assert len(seen.rows("table-runs")) == 1
        assert [one.is_visible() for one in seen.page.locator("#comparisons > section").all()] == [
            "mosaic" in one.inner_text() for one in seen.page.locator("#comparisons h2").all()
        ]
        seen.page.fill("#by-text", "no such words")
        assert seen.rows("table-runs") == []
        assert seen.page.inner_text("#shown").startswith("0 of ")
        seen.page.click("#clear")
        assert seen.rows("table-runs") == everything


@pytest.mark.parametrize(
    ("scheme", "first", "then"), [("light", "light", "dark"), ("dark", "dark", "light")]
)
def test_the_theme_follows_the_system_until_it_is_switched(visit, report, scheme, first, then):
    brightness = (
        "() => getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)[0]"
    )
    with visit(report, color_scheme=scheme) as seen:
        before = seen.page.evaluate(brightness)
        assert (before > 128) == (first == "light")
        seen.page.click("#theme")
        assert (seen.page.evaluate(brightness) > 128) == (then == "light")
        seen.page.reload()
        assert (seen.page.evaluate(brightness) > 128) == (then == "light")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_colors_stand_out_from_what_they_lie_on(visit, report, scheme):
    with visit(report, color_scheme=scheme) as seen:
        for name, least in [("ink", 7), ("muted", 4.5), ("accent", 4.5), *SERIES]:
            for ground in ("page", "surface"):
                front, back = (luminance(seen.color(each)) for each in (name, ground))
                ratio = (max(front, back) + 0.05) / (min(front, back) + 0.05)
                assert ratio >= least, (name, ground, ratio)


def test_nothing_moves_for_readers_who_asked_for_less_motion(visit, report):
    moving = "() => getComputedStyle(document.documentElement).scrollBehavior"
    with visit(report, reduced_motion="reduce") as seen:
        assert seen.page.evaluate(moving) == "auto"
    with visit(report, reduced_motion="no-preference") as seen:
        assert seen.page.evaluate(moving) == "smooth"


def test_it_prints_every_figure_on_light_paper(visit, report):
    with visit(report, color_scheme="dark") as seen:
        paper = seen.page.pdf(format="A4")
        assert paper.startswith(b"%PDF")
        assert paper.count(b"/Type /Page\n") >= 3
        assert len(seen.page.query_selector_all(".plot svg")) == 12
        seen.page.emulate_media(media="print")
        assert (
            seen.page.evaluate("getComputedStyle(document.body).backgroundColor")
            == "rgb(255, 255, 255)"
        )
        assert not seen.page.is_visible("#theme")


def test_a_pointer_and_arrow_keys_read_values_from_a_figure(visit, report, runs):
    with visit(report) as seen:
        seen.see_all()
        figure = seen.page.locator("#comparison-0 .plot svg").first
        figure.hover()
        assert "FedAvg: " in seen.page.inner_text("#tip")
        seen.page.mouse.move(0, 0)
        assert not seen.page.is_visible("#tip")
        seen.page.wait_for_timeout(100)
        figure.focus()
        told = []
        for _ in range(2):
            seen.page.keyboard.press("ArrowRight")
            told.append(seen.page.inner_text("#tip").split("\n")[0])
        first, second = (int(words.removeprefix("round ")) for words in told)
        assert second == first % 6 + 1
        seen.page.keyboard.press("Escape")
        assert not seen.page.is_visible("#tip")


def test_the_last_point_of_a_curve_is_the_final_score(visit, report, runs):
    with visit(report) as seen:
        curve = seen.page.evaluate(
            "() => shell.data().comparisons[0].curves[0].methods[0][0].at(-1)"
        )
        title = seen.page.evaluate("() => shell.data().comparisons[0].curves[0].title")
        shown = seen.column("table-final", title)[0].split()[0]
        assert f"{curve:.1f}" == shown


def test_a_method_is_taken_out_of_a_figure_by_its_legend(visit, report):
    with visit(report) as seen:
        seen.see_all()
        figure = seen.page.locator("#comparison-0 figure").first
        before = figure.locator(".plot .line").count()
        figure.locator(".legend button").first.click()
        assert figure.locator(".plot .line").count() == before - 1
        assert figure.locator(".legend button").first.get_attribute("aria-pressed") == "false"


def test_settings_that_differ_are_marked(visit, report):
    with visit(report) as seen:
        seen.unfold()
        marked = seen.page.locator("#settings tr.differs th").all_inner_texts()
        assert {"seed", "method.name", "data.name"} <= set(marked)
        assert "local.lr" not in marked
        assert "local.lr" in seen.page.inner_text("#settings")


def test_what_was_left_out_is_listed_with_its_reason(visit, report):
    with visit(report) as seen:
        told = seen.page.inner_text("#left-out")
        assert "is unfinished: 6 of 6 rounds" in told
        assert "rounds.jsonl is damaged" in told


@pytest.mark.parametrize("width", [1280, 390])
def test_hostile_and_long_names_do_no_harm(visit, tmp_path, width):
    names = (EVIL, LONG, "漢字" * 60, "a\u202eb", "__proto__", "'\"`")
    sketches = [Sketch(method, 0, classes=names, data="evil") for method in ("fedavg", "fedbb")]
    paths = build_all(tmp_path / "runs", sketches)
    facts = json.loads((paths[0] / "federation.json").read_text())
    (paths[0] / "federation.json").write_text(json.dumps({**facts, "notes": [EVIL, LONG]}))
    paths[1].rename(paths[1].with_name("<b>&'\"" + LONG[:200]))
    write_report(gather([tmp_path / "runs"]), tmp_path / "page.html", title=EVIL + LONG)
    with visit(tmp_path / "page.html", width) as seen:
        seen.see_all()
        seen.unfold()
        seen.see_all()
        assert seen.page.query_selector_all("img, b") == []
        assert seen.page.title().split() == (EVIL + LONG).split()
        listed = seen.page.locator("#comparison-0 details th[scope=row]").all_text_contents()
        assert set(listed) == set(names)
        assert seen.cut() == []


def test_many_methods_find_room(visit, tmp_path):
    methods = (
        "fedavg",
        "fedprox",
        "moon",
        "fednova",
        "fedalign",
        "focal",
        "cb",
        "pnb",
        "cbr",
        "fedbb",
    )
    sketches = [Sketch(method, level=0.5 + at / 30) for at, method in enumerate(methods)]
    build_all(tmp_path / "runs", sketches)
    write_report(gather([tmp_path / "runs"]), tmp_path / "page.html")
    with visit(tmp_path / "page.html") as seen:
        seen.unfold()
        seen.see_all()
        assert seen.cut() == []
        pressed = seen.page.locator("#comparison-0 figure:first-child .legend button").all()
        shown = [one.inner_text() for one in pressed if one.get_attribute("aria-pressed") == "true"]
        assert shown[:2] == ["FedAvg", "FedBB"]
        assert len(shown) == 8 < len(pressed) == 10
        assert seen.page.locator("#comparison-0 details tbody tr").count() == 100


def test_one_run_alone_makes_a_page(visit, tmp_path):
    (path,) = build_all(tmp_path / "runs", [Sketch("fedbb", rounds=1, clients=1)])
    write_report(gather([path]), tmp_path / "page.html")
    assert read_run(path).summary is not None
    with visit(tmp_path / "page.html", 390) as seen:
        seen.see_all()
        assert seen.cut() == []
        assert "Nothing to compare" in seen.page.inner_text("#verdicts")
        assert seen.page.locator("tr.differs").count() == 0


@pytest.mark.slow
def test_two_hundred_runs_open_in_two_seconds(visit, tmp_path):
    sketches = [
        Sketch(method, seed, data=f"data-{number}", rounds=50)
        for number in range(10)
        for method in ("fedavg", "fedavg-scaled", "fedbb", "pnb")
        for seed in range(5)
    ]
    build_all(tmp_path / "runs", [_leveled(sketch) for sketch in sketches])
    gathered = gather([tmp_path / "runs"])
    assert len(gathered.runs) == 200
    write_report(gathered, tmp_path / "page.html")
    took = []
    for _ in range(3):
        with visit(tmp_path / "page.html") as seen:
            seen.page.wait_for_selector("#comparison-9")
            seen.page.evaluate(
                "() => new Promise((done) => requestAnimationFrame(() => setTimeout(done)))"
            )
            took.append(
                seen.page.evaluate("() => performance.getEntriesByType('paint').at(-1).startTime")
            )
            took[-1] = max(
                took[-1],
                seen.page.evaluate(
                    "() => performance.getEntriesByType('navigation')[0].loadEventEnd"
                ),
            )
    assert min(took) < 2000, took


def _leveled(sketch):
    levels = {"fedavg": 0.62, "fedavg-scaled": 0.66, "fedbb": 0.74, "pnb": 0.7}
    return Sketch(sketch.method, sketch.seed, sketch.data, rounds=50, level=levels[sketch.method])
