"""Figures become SVG and PNG that stand on any page and read the same for everyone."""

import io
import itertools
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import matplotlib
import numpy as np
import pytest
from PIL import Image

from fedbb.methods import METHODS
from fedbb.report.groups import MethodRuns
from fedbb.report.page.shell import read_part
from fedbb.report.plots import canvas
from fedbb.report.plots.canvas import (
    METHOD_MARKS,
    SPARE_MARKS,
    class_order,
    class_rows,
    marks_of,
    save_png,
    save_svg,
)
from fedbb.report.plots.figures import (
    balanced_part,
    plot_costs,
    plot_curves,
    plot_gains,
    plot_partition,
    plot_shares,
    plot_weights,
    weighed_part,
)
from helpers.cover import few
from helpers.drawn_figures import HOSTILE, MANY, SHAPES, compared, overhang


def draw_all(comparison):
    return {
        "curves": plot_curves(comparison, comparison.metric),
        "weights": plot_weights(comparison, balanced_part(comparison)),
        "partition": plot_partition(comparison),
        "gains": plot_gains(comparison, comparison.methods[0], "recall"),
        "shares": plot_shares(comparison, *weighed_part(comparison)),
        "costs": plot_costs(comparison, comparison.metric),
    }


@pytest.mark.parametrize("name", few(SHAPES, 2))
def test_nothing_reaches_over_the_edge_of_its_figure(tmp_path, name):
    figures = draw_all(compared(tmp_path, **SHAPES[name]))
    for kind, figure in figures.items():
        assert overhang(figure) < 0.01, kind


def test_png_is_an_image_wide_enough_for_print(tmp_path):
    save_png(plot_partition(compared(tmp_path / "runs")), tmp_path / "map.png")
    with Image.open(io.BytesIO((tmp_path / "map.png").read_bytes())) as image:
        assert image.width == round(canvas.WIDTH * canvas.DOTS_PER_INCH)
        assert len(image.convert("RGB").getcolors(1 << 20)) > 8


def test_an_svg_file_needs_no_font_and_is_the_same_each_time(tmp_path):
    comparison = compared(tmp_path / "runs", classes=HOSTILE)
    for name in ("a.svg", "b.svg"):
        save_svg(plot_gains(comparison, comparison.methods[0], "recall"), tmp_path / name)
    root = ET.fromstring((tmp_path / "a.svg").read_text("utf-8"))
    assert root.attrib["width"].endswith("pt")
    assert not [element for element in root.iter() if element.tag.endswith(("}text", "}script"))]
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()


def test_drawing_leaves_matplotlib_as_it_was(tmp_path):
    before = dict(matplotlib.rcParams)
    save_svg(plot_curves(compared(tmp_path / "runs"), "f1"), tmp_path / "x.svg")
    assert dict(matplotlib.rcParams) == before


def test_pyplot_and_its_global_state_are_never_loaded():
    sources = Path(canvas.__file__).parents[1].rglob("*.py")
    assert not [path.name for path in sources if "pyplot" in path.read_text()]


# Machado, Oliveira and Fernandes (2009): what a dichromat sees, on linear RGB.
SIGHT = {
    "usual": np.eye(3),
    "protanopia": np.array(
        [
            [0.152286, 1.052583, -0.204868],
            [0.114503, 0.786281, 0.099216],
            [-0.003882, -0.048116, 1.051998],
        ]
    ),
    "deuteranopia": np.array(
        [
            [0.367322, 0.860646, -0.227968],
            [0.280085, 0.672501, 0.047413],
            [-0.011820, 0.042940, 0.968881],
        ]
    ),
    "tritanopia": np.array(
        [
            [1.255528, -0.076749, -0.178779],
            [-0.078411, 0.930809, 0.147602],
            [0.004733, 0.691367, 0.303900],
        ]
    ),
}


def linear(color):
    parts = np.array([int(color[place : place + 2], 16) for place in (1, 3, 5)]) / 255
    return np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)


def luminance(color):
    return float(linear(color) @ [0.2126, 0.7152, 0.0722])


def lab(light):
    to_xyz = np.array(
        [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]
    )
    xyz = to_xyz @ np.clip(light, 0, 1) / [0.9505, 1.0, 1.089]
    root = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * root[1] - 16, 500 * (root[0] - root[1]), 200 * (root[1] - root[2])])


def palettes():
    """Return the colors of the first three methods in figures and on both themes of a page."""
    pairs = re.findall(r"--s([012]): light-dark\((#\w{6}), (#\w{6})\)", read_part("shell.css"))
    assert [place for place, _, _ in pairs] == ["0", "1", "2"]
    return {
        "figures": (canvas.BLUE, canvas.ORANGE, canvas.GREEN),
        "light page": [light for _, light, _ in pairs],
        "dark page": [dark for _, _, dark in pairs],
    }


@pytest.mark.parametrize("name", ["INK", "MUTED", "BLUE", "ORANGE", "GREEN", "PURPLE", "SKY"])
def test_every_color_stands_out_from_the_paper(name):
    ratio = 1.05 / (luminance(getattr(canvas, name)) + 0.05)
    assert ratio >= (4.5 if name in {"INK", "MUTED"} else 3.0)


@pytest.mark.parametrize("place", ["figures", "light page", "dark page"])
@pytest.mark.parametrize("sight", SIGHT)
def test_the_methods_of_the_demo_differ_to_every_eye(place, sight):
    seen = [lab(SIGHT[sight] @ linear(color)) for color in palettes()[place]]
    for first, second in itertools.combinations(seen, 2):
        assert np.linalg.norm(first - second) > 20


def parts(*methods):
    return [MethodRuns(method, method, ()) for method in methods]


def test_a_method_keeps_its_mark_whoever_else_is_there():
    assert marks_of(parts("fedbb", "fedavg")) == [METHOD_MARKS["fedbb"], METHOD_MARKS["fedavg"]]
    assert marks_of(parts("fedwow", "fedbb"))[1] == METHOD_MARKS["fedbb"]


def test_known_methods_differ_in_marker_and_in_color_or_line():
    marks = marks_of(parts(*METHOD_MARKS))
    assert set(METHODS) <= set(METHOD_MARKS)
    assert len({mark.marker for mark in marks}) == len(METHOD_MARKS)
    assert len({(mark.color, mark.line) for mark in marks}) == len(METHOD_MARKS)


def test_unknown_methods_look_like_no_known_method():
    assert not {mark.marker for mark in SPARE_MARKS} & {
        mark.marker for mark in METHOD_MARKS.values()
    }
    assert (
        len(set(SPARE_MARKS))
        == len({(mark.color, mark.line) for mark in SPARE_MARKS})
        == len(SPARE_MARKS)
    )


def test_the_methods_of_the_demo_and_its_parts_have_colors_of_their_own():
    known = ("fedavg", "fedavg-scaled", "fedbb", "fedbb-printed", "pnb", "cbr")
    assert len({METHOD_MARKS[name].color for name in known}) == len(known)


def test_variants_and_strangers_get_marks_of_their_own():
    marks = marks_of(parts("fedavg", "fedbb", "fedbb", "fedbb", "fedwow", "fedwhy"))
    assert len(set(marks)) == 6


def test_more_strangers_than_marks_are_drawn_all_the_same():
    assert len(marks_of(parts(*(f"new-{number}" for number in range(12))))) == 12


def test_names_and_counts_stand_beside_their_bars(tmp_path):
    names = ("rare", "common", "middle")
    comparison = compared(tmp_path, classes=names)
    order, counts = class_order(comparison)
    rows = class_rows(comparison)
    assert rows.names == [names[index] for index in order]
    assert rows.counts == [f"{counts[index]:,.0f}" for index in order]
    (axes,) = plot_gains(comparison, comparison.methods[0], "recall").axes
    places = {text.get_text(): text.get_position()[1] for text in axes.texts}
    assert [places[name] for name in rows.names] == [0, 1, 2]
    low, high = axes.get_ylim()
    assert low > high  # the first row is on top


def test_very_many_classes_are_drawn_as_means_over_neighbors(tmp_path):
    comparison = compared(tmp_path, classes=MANY)
    order, counts = class_order(comparison)
    rows = class_rows(comparison)
    np.testing.assert_array_equal(np.concatenate(rows.classes), order)
    assert rows.names[:2] == ["ranks 1–4", "ranks 5–8"]
    assert rows.counts[0] == f"{counts[order[0]]:,.0f} to {counts[order[3]]:,.0f}"
