"""What tests of several rooms share."""

import shutil

import pytest


@pytest.fixture(scope="module")
def browser():
    """A real Chromium; where there is none, the test is skipped and says so."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        pytest.skip("no chromium on this machine (apt install chromium)")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield browser
        browser.close()
