"""What tests of several rooms share."""

import shutil
import sys
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# Examples are the same in every run, and none fails because another job had the cores meanwhile.
settings.register_profile(
    "assay", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("assay")

PATIENCE = 300.0
"""Seconds after which something that a test waits for has hung, however busy the machine is."""


@pytest.fixture(autouse=True)
def modules_of_its_own(tmp_path_factory):
    """Forgets the modules that a test wrote and imported: another test may give its own the same name."""
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        file = getattr(sys.modules[name], "__file__", None)
        if file and Path(file).is_relative_to(tmp_path_factory.getbasetemp()):
            del sys.modules[name]


@pytest.fixture
def eventually():
    """Waits until a condition holds; a test never waits for a time."""

    def wait(condition):
        end = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < end, f"waited {PATIENCE:g} s for what never came"
            time.sleep(0.01)

    return wait


@pytest.fixture(scope="module")
def browser():
    """A real Chromium; where there is none, the test is skipped and says so."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        pytest.skip("no chromium on this machine (apt install chromium)")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=chromium, args=["--no-sandbox"], timeout=1000 * PATIENCE
        )
        yield browser
        browser.close()


@pytest.fixture
def new_page(browser):
    """Opens a page of its own, which waits as long as a busy machine may take."""
    contexts = []

    def opened(**options):
        context = browser.new_context(**options)
        contexts.append(context)
        context.set_default_timeout(1000 * PATIENCE)
        return context.new_page()

    yield opened
    for context in contexts:
        context.close()
