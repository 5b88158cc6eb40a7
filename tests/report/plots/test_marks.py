"""Each method looks the same in every figure, and never like another."""

from fedbb.methods import METHODS
from fedbb.report.groups import MethodRuns
from fedbb.report.plots.marks import OTHERS, OWN, marks_of


def parts(*methods):
    return [MethodRuns(method, method, ()) for method in methods]


def test_a_method_keeps_its_mark_whoever_else_is_there():
    assert marks_of(parts("fedbb", "fedavg")) == [OWN["fedbb"], OWN["fedavg"]]
    assert marks_of(parts("fedwow", "fedbb"))[1] == OWN["fedbb"]


def test_known_methods_differ_in_marker_and_in_color_or_line():
    marks = marks_of(parts(*OWN))
    assert set(OWN) <= set(METHODS)
    assert len({mark.marker for mark in marks}) == len(OWN)
    assert len({(mark.color, mark.line) for mark in marks}) == len(OWN)


def test_strangers_look_like_no_known_method():
    assert not {mark.marker for mark in OTHERS} & {mark.marker for mark in OWN.values()}
    assert len(set(OTHERS)) == len({(mark.color, mark.line) for mark in OTHERS}) == len(OTHERS)


def test_the_methods_of_the_demo_and_its_parts_have_colors_of_their_own():
    known = ("fedavg", "fedavg-scaled", "fedbb", "fedbb-printed", "pnb", "cbr")
    assert len({OWN[name].color for name in known}) == len(known)


def test_variants_and_strangers_get_marks_of_their_own():
    marks = marks_of(parts("fedavg", "fedbb", "fedbb", "fedbb", "fedwow", "fedwhy"))
    assert len(set(marks)) == 6


def test_more_strangers_than_marks_are_drawn_all_the_same():
    assert len(marks_of(parts(*(f"new-{number}" for number in range(12))))) == 12
