"""Debian's Chromium, driven by Playwright: for tests that look at pages as a person would."""

from __future__ import annotations

import shutil
from contextlib import contextmanager
from pathlib import Path

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome")


def executable() -> str:
    """Where the browser is; skips the test where there is none."""
    pytest.importorskip("playwright", reason="playwright is not installed")
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        pytest.skip("no Chromium here (on Debian: apt-get install chromium)")
    return found


@contextmanager
def opened(path: Path, *, width: int = 1200, height: int = 900, dark: bool = False):
    """A page from disk, without a network; ``page.said`` has whatever the console said."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable(), args=["--no-sandbox"])
        try:
            scheme = "dark" if dark else "light"
            context = browser.new_context(
                viewport={"width": width, "height": height},
                color_scheme=scheme,
                has_touch=width < 600,
                offline=True,
            )
            page = context.new_page()
            page.said = []
            page.on("console", lambda message: page.said.append(message.text))
            page.on("pageerror", lambda error: page.said.append(str(error)))
            page.on("request", lambda r: _only_from_disk(page, r))
            page.goto(path.resolve().as_uri())
            page.wait_for_selector("html[data-ready=yes]", state="attached", timeout=20_000)
            yield page
        finally:
            browser.close()


def _only_from_disk(page, request) -> None:
    if not request.url.startswith(("file:", "data:")):
        page.said.append(f"a request to {request.url}")
