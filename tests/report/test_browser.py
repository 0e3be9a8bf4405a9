"""The report in a real Chromium: tables sort, nothing sticks out on a phone."""

import pandas as pd
import pytest
from matplotlib.figure import Figure

import assay
from assay.report import Section


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
    assay.write_report([Section("One", "Words.", figures=[figure], table=table)], path)
    return path.as_uri()


def test_a_click_on_a_heading_sorts_and_leaves_what_is_missing_last(new_page, address):
    page = new_page()
    page.goto(address)
    orders = []
    for _ in range(2):
        page.get_by_role("button", name="value").click()
        orders.append(page.locator("tbody tr td:first-child").all_inner_texts())
    assert orders == [["d", "c", "b", "a"], ["b", "c", "d", "a"]]
    assert page.locator("th[aria-sort=descending]").count() == 1
    page.get_by_role("button", name="name").click()
    assert page.locator("tbody tr td:first-child").all_inner_texts() == ["a", "b", "c", "d"]


def test_on_a_phone_wide_things_scroll_by_themselves(new_page, address):
    page = new_page(viewport={"width": 390, "height": 844})
    page.goto(address)
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    assert page.evaluate("document.querySelector('figure').scrollWidth") > 390
    assert page.evaluate("document.querySelector('.wide').scrollWidth") > 390
