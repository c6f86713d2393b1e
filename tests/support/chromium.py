"""A Chromium browser for tests of pages, which are skipped without Chromium."""

import shutil

import pytest


@pytest.fixture(scope="module")
def browser():
    """Yields a browser and closes it and its pages after the module.

    A test file defines the fixture by `browser = chromium.browser`.
    """
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="playwright is not installed"
    )
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        pytest.skip("Chromium is not installed")
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(
            executable_path=chromium, args=["--no-sandbox"]
        )
        yield browser
        browser.close()
