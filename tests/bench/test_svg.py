"""Charts as SVG."""

from xml.etree import ElementTree as ET

import pytest

from bench.nccl.report.charts import size_name
from bench.svg import WIDTH, Axis, Chart, Dot, Line, limits, svg, ticks

SVG = "{http://www.w3.org/2000/svg}"


def test_a_drawing() -> None:
    mine = Line("mine & <yours>", (Dot(8, 1, 2, 3), Dot(1024, 10, 20, 30)))
    chart = Chart(
        "Title",
        "GB/s",
        (mine, Line("theirs", (Dot(8, 25, 25, 25), Dot(1024, 25, 25, 25)), is_reference=True)),
        x_name=size_name,
    )

    drawn = ET.fromstring(svg(chart))

    texts = [element.text for element in drawn.iter(f"{SVG}text")]
    assert {"Title", "GB/s", "8", "1K", "mine & <yours>", "theirs"} <= set(texts)
    lines = list(drawn.iter(f"{SVG}polyline"))
    assert [line.get("stroke-dasharray") for line in lines] == [None, "6 4"]
    assert len(list(drawn.iter(f"{SVG}polygon"))) == 1, "a reference has no spread"
    (command_output, *_) = [element.findtext(f"{SVG}title") for element in drawn.iter(f"{SVG}circle")]
    assert command_output == "mine & <yours>, 8: 2 GB/s (1 to 3)"


def test_dots_are_inside() -> None:
    dots = tuple(Dot(1 << power, 0.1, 1.5**power, 1.6**power) for power in range(3, 34))

    drawn = ET.fromstring(svg(Chart("all sizes", "µs", (Line("one", dots),), logarithmic=True)))

    coordinates = [
        (float(element.get("cx", "-1")), float(element.get("cy", "-1")))
        for element in drawn.iter(f"{SVG}circle")
    ]
    assert len(coordinates) == 31
    assert all(0 < x < WIDTH and 0 < y < 420 for x, y in coordinates)
    assert [x for x, _ in coordinates] == sorted(x for x, _ in coordinates)
    assert [y for _, y in coordinates] == sorted((y for _, y in coordinates), reverse=True)


def test_an_axis_of_names() -> None:
    """The dots are equally far apart, and each has the name of its x value."""
    names = ("aaa", "bbb", "ccc")
    line = Line("one", tuple(Dot(float(x), 1, 1, 1) for x in range(3)))

    drawn = ET.fromstring(
        svg(Chart("t", "×", (line,), x="commit", x_name=lambda x: names[int(x)], is_x_logarithmic=False))
    )

    xs = [float(element.get("cx", "-1")) for element in drawn.iter(f"{SVG}circle")]
    assert xs[1] - xs[0] == xs[2] - xs[1] > 0
    assert {*names, "commit"} <= {element.text for element in drawn.iter(f"{SVG}text")}


def test_a_single_dot_is_in_the_middle() -> None:
    assert Axis(8, 8, 0, 100, logarithmic=True)(8) == 50


@pytest.mark.parametrize(
    ("highest", "last", "count"),
    [(475, 500, 11), (1.0, 1.0, 11), (0.03, 0.03, 7), (835, 900, 10), (2, 2.0, 11)],
)
def test_ticks(highest: float, last: float, count: int) -> None:
    found = ticks(highest)

    assert (found[0], found[-1], len(found)) == (0, last, count)


def test_limits() -> None:
    assert limits([3, 0], [50, 200], logarithmic=False) == (0, 200)
    assert limits([3, 0], [50, 200], logarithmic=True) == (1, 1000)
    assert limits([0], [0], logarithmic=False) == (0, 1)
