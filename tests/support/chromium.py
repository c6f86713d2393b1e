"""Chromium, in which tests open pages: they are skipped where there is none."""

import shutil

import pytest


@pytest.fixture(scope="module")
def browser():
    """A test has it by `browser = chromium.browser`. Its pages are closed with it."""
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
