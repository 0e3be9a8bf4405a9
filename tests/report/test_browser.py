"""The report in a real Chromium: tables sort, nothing sticks out on a phone."""

import io

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure
from PIL import Image

import assay
from assay.report import Section
from assay.report.section import Banner


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    path = tmp_path_factory.mktemp("report") / "report.html"
    table = pd.DataFrame(
        {
            "name": ["b", "a", "c", "d"],
            "value": [10.0, float("nan"), 9.0, float("-inf")],
            "remark": ["long words " * 20] * 4,
        }
    )
    figure = Figure(figsize=(8, 2))
    figure.subplots().set_title("wide")
    many = pd.DataFrame({"name": [f"row {number}" for number in range(60)], "value": np.zeros(60)})
    sections = [
        Section(
            "One", "Words.", figures=[figure], table=table, banner=Banner.of(False, "No: a gate failed.")
        ),
        Section("Many", table=many),
    ]
    assay.write_report(sections, path)
    return path.as_uri()


def first_column(page):
    return page.locator("#one tbody tr td:first-child").all_inner_texts()


def test_a_click_on_a_heading_sorts_and_leaves_what_is_missing_last(new_page, address):
    page = new_page()
    page.goto(address)
    orders = []
    for _ in range(2):
        page.get_by_role("button", name="value").first.click()
        orders.append(first_column(page))
    assert orders == [["d", "c", "b", "a"], ["b", "c", "d", "a"]]
    assert page.locator("th[aria-sort=descending]").count() == 1
    page.get_by_role("button", name="name").first.click()
    assert first_column(page) == ["a", "b", "c", "d"]


def test_on_a_phone_wide_things_scroll_by_themselves(new_page, address):
    page = new_page(viewport={"width": 390, "height": 844})
    page.goto(address)
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    assert page.evaluate("document.querySelector('figure').scrollWidth") > 390
    assert page.evaluate("document.querySelector('.wide').scrollWidth") > 390


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_verdict_is_seen_at_once_on_a_phone(new_page, address, scheme):
    page = new_page(viewport={"width": 390, "height": 844}, color_scheme=scheme)
    page.goto(address)
    box = page.locator(".banner").bounding_box()
    assert box["y"] + box["height"] < 300
    assert box["y"] < page.locator("table").first.bounding_box()["y"]
    paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert paper == {"light": "rgb(255, 255, 255)", "dark": "rgb(21, 24, 27)"}[scheme]
    # The figure follows: its own paper is that of the page.
    corner = Image.open(io.BytesIO(page.locator("figure img").screenshot())).convert("RGB").getpixel((3, 3))
    assert f"rgb{corner}" == paper


def test_a_long_table_keeps_its_head_and_can_be_filtered(new_page, address):
    page = new_page(viewport={"width": 1280, "height": 800})
    page.goto(address)
    assert page.locator(".filter").count() == 1  # of the long one alone
    page.locator("#many summary").first.click()
    page.fill(".filter input", "ROW 59")
    assert page.locator("#many tbody tr:visible td:first-child").all_inner_texts() == ["row 59"]
    page.fill(".filter input", "")
    assert page.locator("#many tbody tr:visible").count() == 60
    head, wide = page.locator("#many thead"), page.locator("#many .wide")
    wide.evaluate("box => { box.scrollTop = 600; }")
    assert page.locator("#many tbody td").first.bounding_box()["y"] < wide.bounding_box()["y"]
    assert head.locator("th").first.bounding_box()["y"] >= wide.bounding_box()["y"] - 1
