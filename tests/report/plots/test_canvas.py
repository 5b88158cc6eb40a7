"""Figures become SVG and PNG that stand on any page and read the same for everyone."""

import io
import itertools
import re
import xml.etree.ElementTree as ET
from importlib import resources
from pathlib import Path

import matplotlib
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from fedbb.report.plots import canvas
from fedbb.report.plots.canvas import VARIABLES, save_png, save_svg, shorten, to_svg
from fedbb.report.plots.classes import plot_classes
from fedbb.report.plots.costs import plot_costs
from fedbb.report.plots.curves import plot_curves
from fedbb.report.plots.gains import plot_gains
from fedbb.report.plots.partition import plot_partition
from fedbb.report.plots.shares import plot_shares, weighed_part
from fedbb.report.plots.weights import balanced_part, plot_weights
from helpers.drawn_figures import HOSTILE, SHAPES, compared, overhang

STYLE = resources.files("fedbb.report").joinpath("page.css").read_text()
LIGHT, DARK = re.findall(r":root \{(.*?)\n\s*\}", STYLE, re.DOTALL)[:2]


def draw_all(comparison):
    return {
        "curves": plot_curves(comparison, comparison.metric),
        "classes": plot_classes(comparison, "recall"),
        "weights": plot_weights(comparison, balanced_part(comparison)),
        "partition": plot_partition(comparison),
        "gains": plot_gains(comparison, comparison.methods[0], "recall"),
        "shares": plot_shares(comparison, *weighed_part(comparison)),
        "costs": plot_costs(comparison, comparison.metric),
    }


@pytest.mark.parametrize("name", SHAPES)
def test_nothing_reaches_over_the_edge_of_its_figure(tmp_path, name):
    figures = draw_all(compared(tmp_path, **SHAPES[name]))
    for kind, figure in figures.items():
        assert overhang(figure) < 0.01, kind


def test_svg_takes_size_and_colors_from_the_page(tmp_path):
    figure = plot_curves(compared(tmp_path), "f1")
    text = to_svg(figure, "first")
    root = ET.fromstring(text)
    assert "width" not in root.attrib
    assert "height" not in root.attrib
    assert float(root.attrib["viewBox"].split()[2]) == pytest.approx(72 * canvas.WIDTH)
    assert not [color for color in VARIABLES if color in text]
    assert {"var(--ink)", "var(--blue)", "var(--orange)", "var(--green)"} <= set(
        re.findall(r"var\(--\w+\)", text)
    )
    assert "<metadata" not in text
    assert not re.search(r"https?://(?!www\.w3\.org/)", text)


def test_ids_of_two_figures_on_one_page_do_not_meet(tmp_path):
    comparison = compared(tmp_path)
    found = [
        {element.attrib["id"] for element in ET.fromstring(text).iter() if "id" in element.attrib}
        for text in (to_svg(plot_curves(comparison, "f1"), name) for name in ("a", "b"))
    ]
    assert found[0]
    assert found[0].isdisjoint(found[1])


def test_every_reference_in_a_figure_has_its_target(tmp_path):
    text = to_svg(plot_partition(compared(tmp_path)), "map")
    targets = set(re.findall(r'\bid="([^"]+)"', text))
    assert set(re.findall(r"url\(#([^)]+)\)|href=\"#([^\"]+)\"", text))
    for group in re.findall(r"url\(#([^)]+)\)|href=\"#([^\"]+)\"", text):
        assert next(filter(None, group)) in targets


def test_the_same_runs_give_the_same_bytes(tmp_path):
    comparison = compared(tmp_path)
    first, second = (to_svg(plot_curves(comparison, "f1"), "x") for _ in range(2))
    assert first == second


def test_names_from_outside_are_words_in_the_svg(tmp_path):
    figure = plot_classes(compared(tmp_path, classes=HOSTILE), "recall")
    text = to_svg(figure, "x")
    assert "<script" not in text
    words = " ".join(ET.fromstring(text).itertext())
    assert "<script>ale" in words
    assert '"a" & $\\frac{$' in words
    assert "日本語 の 名前" in words
    assert "two lines" in words


def test_png_is_an_image_wide_enough_for_print(tmp_path):
    save_png(plot_partition(compared(tmp_path / "runs")), tmp_path / "map.png")
    with Image.open(io.BytesIO((tmp_path / "map.png").read_bytes())) as image:
        assert image.width == round(canvas.WIDTH * canvas.DOTS_PER_INCH)
        assert len(image.convert("RGB").getcolors(1 << 20)) > 8


def test_an_svg_file_needs_no_font_and_is_the_same_each_time(tmp_path):
    comparison = compared(tmp_path / "runs", classes=HOSTILE)
    for name in ("a.svg", "b.svg"):
        save_svg(plot_classes(comparison, "recall"), tmp_path / name)
    root = ET.fromstring((tmp_path / "a.svg").read_text("utf-8"))
    assert root.attrib["width"].endswith("pt")
    assert not [element for element in root.iter() if element.tag.endswith(("}text", "}script"))]
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()


def test_drawing_leaves_matplotlib_as_it_was(tmp_path):
    before = dict(matplotlib.rcParams)
    to_svg(plot_curves(compared(tmp_path), "f1"), "x")
    assert dict(matplotlib.rcParams) == before


def test_pyplot_and_its_global_state_are_never_loaded():
    sources = Path(canvas.__file__).parents[1].rglob("*.py")
    assert not [path.name for path in sources if "pyplot" in path.read_text()]


@given(st.text(), st.integers(4, 40))
def test_shortened_names_fit_on_one_line_and_keep_both_ends(text, length):
    short = shorten(text, length)
    assert len(short) <= length
    assert short.isprintable()
    if "…" in short and "…" not in text:
        head, tail = short.split("…")
        assert head
        assert tail


def test_short_names_stay_and_signs_that_cannot_be_seen_go():
    assert shorten("short") == "short"
    assert shorten("a\x00b\n c") == "a b c"


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


def palette(block):
    return dict(re.findall(r"--(\w+): (#[0-9a-f]{6})", block))


def test_the_page_in_light_has_the_colors_of_the_png_files():
    light = palette(LIGHT)
    for color, name in VARIABLES.items():
        assert name in palette(DARK)
        if name != "surface":  # a near white that stands for the page's white
            assert light[name] == color


@pytest.mark.parametrize("block", [LIGHT, DARK], ids=["light", "dark"])
def test_every_color_stands_out_from_its_page(block):
    colors = palette(block)
    page = luminance(colors["surface"])
    for name in set(VARIABLES.values()) - {"surface", "grid"}:
        low, high = sorted((luminance(colors[name]), page))
        wanted = 4.5 if name in {"ink", "muted", "accent"} else 3.0
        assert (high + 0.05) / (low + 0.05) >= wanted, name


@pytest.mark.parametrize("block", [LIGHT, DARK], ids=["light", "dark"])
@pytest.mark.parametrize("sight", SIGHT)
def test_the_methods_of_the_demo_differ_to_every_eye(block, sight):
    colors = palette(block)
    seen = [lab(SIGHT[sight] @ linear(colors[name])) for name in ("blue", "orange", "green")]
    for first, second in itertools.combinations(seen, 2):
        assert np.linalg.norm(first - second) > 20
