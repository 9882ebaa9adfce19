import re
from datetime import UTC, timedelta, timezone
from itertools import pairwise
from xml.etree import ElementTree

import pytest

from muster.autoscaler.report.history import History, JobSpan, Span
from muster.autoscaler.report.lifecycle import Stage
from muster.autoscaler.report.timeline import CHART, COLOURS, JOB, LANES, draw

SVG = "{http://www.w3.org/2000/svg}"
T = 1777890000.0  # 2026-05-04 10:20 UTC


def picture(history, zone=UTC):
    return ElementTree.fromstring(draw(history, zone))  # noqa: S314 (our own)


def bars(svg):
    """Hint -> left, right of what has a hint."""
    return {
        rect[0].text: (float(rect.get("x")), float(rect.get("x")) + float(rect.get("width")))
        for rect in svg.iter(f"{SVG}rect")
        if len(rect)
    }


def texts(svg, kind=None):
    return [text.text for text in svg.iter(f"{SVG}text") if kind in (None, text.get("class"))]


def nodes(count):
    return {f"lab-debug-{n}": [Span(Stage.BUSY, T + n, T + 1000)] for n in range(count)}


def test_bars_lie_where_their_time_is():
    history = History(
        T,
        T + 1000,
        {"n0": [Span(Stage.BOOTING, T, T + 250, "n1"), Span(Stage.BUSY, T + 250, T + 1000)]},
        [JobSpan(7, ("n0",), T, T + 250, T + 1000, lost=False)],
    )
    shown = bars(picture(history))
    boot = shown["n0: booting for 4 min, from 10:20:00, n1"]
    busy = shown["n0: busy for 12 min, from 10:24:10"]
    assert boot[1] - boot[0] == pytest.approx(CHART / 4, abs=0.2)
    assert busy[1] - busy[0] == pytest.approx(CHART * 3 / 4, abs=0.2)
    assert boot[1] == pytest.approx(busy[0], abs=0.2)
    assert shown["job 7, 1 node: asked 10:20:00, waited 4 min"] == boot
    assert shown["job 7, 1 node: asked 10:20:00, waited 4 min, ran 12 min"] == busy


def test_what_took_no_time_can_still_be_seen():
    history = History(T, T + 86400, {"n0": [Span(Stage.RELEASED, T + 5, T + 6)]})
    [(begin, end)] = bars(picture(history)).values()
    assert end - begin == 1


def test_texts_of_others_stay_texts():
    reason = "</title><script>alert(1)</script> & \x1b[2J\x00\ufffe"
    history = History(T, T + 10, {"n<0>&": [Span(Stage.DOWN, T, T + 10, "", reason)]})
    svg = picture(history)
    assert texts(svg, "name") == ["n<0>&"]
    assert "<script>alert(1)</script> &" in next(iter(bars(svg)))
    assert list(svg.iter(f"{SVG}script")) == []
    assert "\x1b" not in draw(history) and "\x00" not in draw(history)


def test_nothing_of_it_is_fetched_or_run():
    text = draw(History(T, T + 10, nodes(3)))
    assert "href" not in text and "<script" not in text and "onload" not in text
    assert text.count("http") == 1  # the name space


def test_who_does_not_see_it_hears_its_title():
    svg = picture(History(T, T + 10, nodes(1)))
    assert svg.get("role") == "img"
    assert svg[0].tag == f"{SVG}title"
    assert [svg[0].text] == texts(svg, "title")


def light_and_dark(svg):
    """Property of a class or element, such as `.page fill`, -> its colour; for both modes."""
    style = svg.findtext(f"{SVG}style")
    rules = re.compile(r"^([^{}@\n]+) {[^}]*?(fill|stroke): (#\w+)", re.MULTILINE)
    everywhere, dark = ({}, {})
    media = re.search(
        r"^@media \(prefers-color-scheme: dark\) {\n(.*?)^}\n", style, re.DOTALL | re.M
    )
    for text, colours in ((style.replace(media[0], ""), everywhere), (media[1], dark)):
        for selectors, kind, colour in rules.findall(text):
            for selector in selectors.split(", "):
                colours[f"{selector} {kind}"] = colour
    return everywhere, everywhere | dark


def contrast(one, other):
    """The ratio of two colours as WCAG defines it: 1 to 21."""

    def luminance(colour):
        parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        linear = [
            part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
        ]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    darker, lighter = sorted((luminance(one), luminance(other)))
    return (lighter + 0.05) / (darker + 0.05)


@pytest.mark.parametrize("mode", [0, 1], ids=["light", "dark"])
def test_it_is_legible_in_light_and_in_dark_mode(mode):
    """WCAG asks for 4.5 between a text and what is behind it, and for 3 around what is drawn."""
    colours = light_and_dark(picture(History(T, T + 10, nodes(1))))[mode]
    for behind in (".page fill", ".row fill"):
        for text in ("text fill", ".soft fill", ".tick fill"):
            assert contrast(colours[text], colours[behind]) >= 4.5, (text, behind)
        assert contrast(colours[".bar stroke"], colours[behind]) >= 3
    assert contrast(colours[".job fill"], JOB) >= 4.5
    assert contrast(colours[".page fill"], "#ffffff" if mode == 0 else "#000000") < 1.2


def test_contrast_is_that_of_wcag():
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)


def test_names_are_in_the_order_of_their_numbers():
    assert texts(picture(History(T, T + 1000, nodes(12))), "name") == [
        f"lab-debug-{n}" for n in range(12)
    ]


@pytest.mark.parametrize(("count", "least"), [(10, 9), (100, 9), (200, 9)])
def test_names_of_many_nodes_are_readable_and_don_t_overlap(count, least):
    svg = picture(History(T, T + 1000, nodes(count)))
    names = [text for text in svg.iter(f"{SVG}text") if text.get("class") == "name"]
    sizes = {
        float(name.get("style").removeprefix("font-size:").removesuffix("px")) for name in names
    }
    at = [float(name.get("y")) for name in names]
    assert len(at) == count
    assert min(sizes) >= least
    assert min(b - a for a, b in pairwise(at)) >= max(sizes)
    assert at[-1] < float(svg.get("height")) < 2600


@pytest.mark.parametrize("length", [0, 3, 59, 600, 3600, 7200, 86400, 30 * 86400])
def test_the_axis_has_some_round_times(length):
    svg = picture(History(T, T + length, nodes(1)))
    ticks = texts(svg, "tick")
    assert len(ticks) % 2 == 0 and 1 <= len(ticks) / 2 <= 11
    x = [float(text.get("x")) for text in svg.iter(f"{SVG}text") if text.get("class") == "tick"]
    assert len(set(x)) == len(x) / 2
    assert max(x) <= float(svg.get("width"))


def test_times_are_those_of_the_zone():
    east = timezone(timedelta(hours=5, minutes=30), "IST")
    svg = picture(History(T, T + 7200, nodes(1)), east)
    assert "16:00" in texts(svg, "tick")
    assert any("2026-05-04 15:50 to 17:50 IST" in text for text in texts(svg, "soft"))


def test_a_new_day_is_said():
    svg = picture(History(T, T + 86400, nodes(1)))
    assert "05-05 00:00" in texts(svg, "tick")


def test_the_legend_has_what_occurs():
    history = History(
        T,
        T + 10,
        {"n0": [Span(Stage.BUSY, T, T + 5), Span(Stage.GOING, T + 5, T + 10)]},
        [JobSpan(7, ("n0",), T, T + 1, T + 1, lost=True)],
    )
    words = texts(picture(history))
    assert "busy" in words and "going" in words and "booting" not in words
    assert "nodes released, job is queued again" in words


def test_each_stage_has_its_own_colour():
    assert set(COLOURS) == set(Stage) - {Stage.OFF}
    assert len(set(COLOURS.values())) == len(COLOURS)


def test_jobs_at_the_same_time_have_their_own_rows_up_to_a_limit():
    jobs = [JobSpan(n, ("n",), T, T + 5, T + 10, lost=False) for n in range(LANES + 60)]
    jobs.append(JobSpan(999, ("n",), T + 10, T + 15, T + 20, lost=False))
    svg = picture(History(T, T + 20, nodes(1), jobs))
    shown = {hint.split(",")[0] for hint in bars(svg) if hint.startswith("job")}
    assert len(shown) == LANES + 1 and "job 999" in shown
    assert "and 60 more jobs at the same time" in texts(svg, "soft")


def test_one_of_something_is_no_plural():
    job = JobSpan(7, ("n",), T, T + 5, T + 10, lost=False)
    [period] = texts(picture(History(T, T + 20, nodes(1), [job])), "soft")
    assert period.endswith(" · 1 node · 1 job")
    assert texts(picture(History(T, T + 20, nodes(2))), "soft")[0].endswith(" · 2 nodes · 0 jobs")


def test_nothing_at_all_is_a_picture_too():
    assert "0 nodes" in "".join(texts(picture(History(T, T + 60)), "soft"))
