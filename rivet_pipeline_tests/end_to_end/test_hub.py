"""The hub in a real browser: every page in every light and width, the keyboard, accessibility, other origins."""

from __future__ import annotations

import re
import shutil
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import httpx
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, expect, sync_playwright
from pydantic import SecretStr

from rivet_pipeline.db.embedded import EmbeddedServer
from rivet_pipeline.db.pool import connect
from rivet_pipeline.settings import Settings
from rivet_pipeline_tests.api_server import module_store, running_api
from rivet_pipeline_tests.hub_store import HubStore, fill_hub_store

pytestmark = pytest.mark.slow

TOKEN = "a-long-random-text"
WIDTHS = {"desktop": (1280, 900), "phone": (390, 844)}


@dataclass
class Site:
    """A running hub, what its store holds, and a browser to read it with."""

    base: str
    url: str
    store: HubStore
    browser: Browser
    complaints: list[str] = field(default_factory=list)

    @contextmanager
    def page(self, *, width: str = "desktop", scheme: str = "light", scripts: bool = True) -> Iterator[Page]:
        """A fresh page that notes what the browser complains about."""
        size = WIDTHS[width]
        context: BrowserContext = self.browser.new_context(
            viewport={"width": size[0], "height": size[1]},
            color_scheme="dark" if scheme == "dark" else "light",
            java_script_enabled=scripts,
            reduced_motion="reduce",
        )
        opened = context.new_page()
        opened.set_default_timeout(20_000)
        opened.on("console", self._note)
        opened.on("pageerror", lambda error: self.complaints.append(str(error)))
        try:
            yield opened
        finally:
            context.close()

    def _note(self, message: ConsoleMessage) -> None:
        if message.type in {"error", "warning"}:
            self.complaints.append(f"{message.text} ({message.location})")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    binary = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if binary is None:
        pytest.skip("there is no Chromium here; on Debian: apt-get install chromium")
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=binary, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture(scope="module")
def opened(server: EmbeddedServer, browser: Browser) -> Iterator[Site]:
    with module_store(server, "hub_browser") as url:
        with connect(url) as connection:
            store = fill_hub_store(connection, url)
        with running_api(Settings(timezone="Europe/Berlin"), url) as base:
            yield Site(base, url, store, browser)


@pytest.fixture
def site(opened: Site) -> Iterator[Site]:
    opened.complaints.clear()
    yield opened
    assert opened.complaints == []


def pages_of(store: HubStore) -> dict[str, str]:
    return {
        "start": "/hub",
        "search": "/hub?q=sessions+postgres",
        "conversation": f"/hub/c/{store.plain}?page=3",
        "hostile": f"/hub/c/{store.hostile}",
        "timeline": "/hub/timeline",
        "day": "/hub/day/2026-03-02",
        "health": "/hub/health",
        "review": "/hub/review",
        "wiki": "/hub/wiki",
        "wiki page": "/hub/wiki/session-store",
        "wiki history": "/hub/wiki/session-store/history",
        "keys": "/hub/keys",
    }


def serious(page: Page) -> list[str]:
    """What axe finds against WCAG AA that keeps people out."""
    asked = {"resultTypes": ["violations"], "runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]}
    found = Axe().run(page, options=asked).response["violations"]
    return [
        f"{violation['id']}: {violation['nodes'][0]['html'][:200]}"
        for violation in found
        if violation["impact"] in {"serious", "critical"}
    ]


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_page_loads_fits_and_keeps_nobody_out(site: Site, scheme: str, width: str) -> None:
    with site.page(width=width, scheme=scheme) as page:
        for name, path in pages_of(site.store).items():
            answer = page.goto(site.base + path)
            assert answer is not None
            assert answer.status == 200, name
            assert page.evaluate("document.documentElement.scrollWidth") <= WIDTHS[width][0], name
            background = page.evaluate("getComputedStyle(document.body).backgroundColor")
            assert (sum(map(int, background[4:-1].split(","))) < 3 * 128) == (scheme == "dark"), background
            # Each light and each width once: looking takes a second a page.
            if (scheme == "light") == (width == "desktop"):
                assert serious(page) == [], name


def test_a_summary_and_a_whole_text_keep_nobody_out(site: Site) -> None:
    with site.page(scheme="dark") as page:
        page.goto(f"{site.base}/hub/c/{site.store.plain}")
        page.locator(".node.leaf > summary").first.click()
        page.locator(".node.leaf .summary-text").first.wait_for()
        assert serious(page) == []
        page.locator(".node.leaf .panel a", has_text="In the conversation").first.wait_for()
        page.locator(".more a").first.click()
        expect(page.locator(".more")).to_have_count(0)
        assert page.inner_text(".transcript").count("A long report.") == 900
        assert serious(page) == []


def test_the_keyboard_finds_and_opens(site: Site) -> None:
    with site.page() as page:
        page.goto(f"{site.base}/hub/health")
        page.keyboard.press("/")
        page.wait_for_url("**/hub")
        page.locator("[name=q]:focus").wait_for()
        page.keyboard.type("sessions_100 table")
        page.keyboard.press("Enter")
        page.wait_for_url("**q=sessions_100*")
        page.locator(".hit").first.wait_for()
        page.keyboard.press("j")
        page.keyboard.press("j")
        page.keyboard.press("k")
        assert page.locator(".hit.current").count() == 1
        link = page.locator(".hit.current [data-open]").get_attribute("href")
        assert link == page.locator(".hit [data-open]").first.get_attribute("href")
        page.keyboard.press("Enter")
        page.wait_for_url(re.compile("/hub/[cs]/"))
        page.keyboard.press("?")
        page.wait_for_url("**/hub/keys")


def test_enter_unfolds_a_tool_call(site: Site) -> None:
    with site.page() as page:
        page.goto(f"{site.base}/hub/c/{site.store.hostile}")
        folded = page.locator(".message:has(details)").first
        folded.wait_for()
        for _ in range(page.locator(".message").count()):
            page.keyboard.press("j")
            if "current" in (folded.get_attribute("class") or ""):
                break
        page.keyboard.press("Enter")
        assert folded.locator("details").first.get_attribute("open") is not None
        assert page.url.endswith(str(site.store.hostile))


def test_the_page_of_the_api_keeps_nobody_out(site: Site) -> None:
    for width, scheme in (("desktop", "light"), ("phone", "dark")):
        with site.page(width=width, scheme=scheme) as page:
            page.goto(f"{site.base}/docs")
            assert page.evaluate("document.documentElement.scrollWidth") <= WIDTHS[width][0]
            assert serious(page) == []
            page.locator("nav a", has_text="/api/memory/browse").click()
            page.wait_for_url("**#get-api-memory-browse")


def test_long_names_stay_within_the_narrowest_page(site: Site) -> None:
    name = "n" * 200
    body = {
        "session_key": "long:names",
        "agent": name,
        "channel": "sh",
        "title": name,
        "messages": [{"event_id": "1", "role": "tool", "tool_name": name, "tool_result": "farfetched"}],
    }
    httpx.post(f"{site.base}/api/capture", json=body, timeout=30).raise_for_status()
    with site.page() as page:
        for wide in (320, 1280):
            page.set_viewport_size({"width": wide, "height": 800})
            for path in ("/hub", "/hub?q=farfetched", "/hub/timeline"):
                page.goto(site.base + path)
                assert page.evaluate("document.documentElement.scrollWidth") <= wide, (path, wide)
        # The filters stand beside one another, whatever an agent is called.
        page.goto(f"{site.base}/hub?q=farfetched")
        tops = {
            round(label.evaluate("node => node.getBoundingClientRect().y"))
            for label in page.locator(".filters label").all()
        }
        assert len(tops) == 1


def test_a_hit_leads_to_its_message_and_the_message_to_its_summary(site: Site) -> None:
    with site.page() as page:
        page.goto(f"{site.base}/hub?q=sessions_100&scope=messages")
        page.locator(".hit [data-open]").first.click()
        page.wait_for_url(re.compile("/hub/c/.*page=2#m-"))
        target = page.locator(".message:target")
        assert "sessions_100" in target.inner_text()
        assert target.evaluate("node => { const b = node.getBoundingClientRect(); return b.top > 40 && b.top < 850 }")
        target.locator(".leaf-link").click()
        node = page.locator(".node:target")
        node.locator(".summary-text").wait_for()
        assert node.get_attribute("open") is not None
        node.locator("a.jump").first.click()
        page.wait_for_url("**/hub/c/**#m-*")
        assert page.locator(".message:target").count() == 1


def test_why_and_sources_unfold_in_place(site: Site) -> None:
    with site.page() as page:
        page.goto(f"{site.base}/hub?q=sessions&scope=summaries")
        hit = page.locator(".hit").first
        hit.locator(".why summary").click()
        # The four parts, and what the surroundings lend.
        assert hit.locator(".why .meter").count() >= 4
        hit.locator(".unfold summary").click()
        hit.locator(".summary-text").wait_for()
        assert page.url.endswith("scope=summaries")


def test_ten_tags_are_reviewed_by_the_keyboard_alone_with_undo(site: Site) -> None:
    def statuses() -> list[str]:
        with connect(site.url) as connection:
            rows = connection.execute("SELECT status FROM ros_tags ORDER BY tag_value").fetchall()
        return [row["status"] for row in rows]

    with site.page() as page:
        page.goto(f"{site.base}/hub/review")
        page.keyboard.press("j")
        # Typed ahead of the answers: five are accepted, one of them again after an undo, and five rejected.
        for key in "aaaaau":
            page.keyboard.press(key)
        page.locator(".said", has_text="Taken back").wait_for()
        assert statuses().count("accepted") == 4
        page.keyboard.press("k")
        page.locator("[data-item].current").wait_for()
        first = page.locator("[data-item]").first
        page.keyboard.press("a")
        page.locator(".said", has_text="Accepted 1").wait_for()
        while page.locator("[data-item].current").evaluate("n => n !== document.querySelector('[data-item]')"):
            page.keyboard.press("k")
        assert first.is_visible()
        for _ in range(5):
            page.keyboard.press("r")
        expect(page.locator(".tag-chip")).to_have_count(0, timeout=20_000)
        assert sorted(statuses()) == ["accepted"] * 5 + ["rejected"] * 5
        assert page.url == f"{site.base}/hub/review"
        # All of it is walked back, and done again in one go.
        for _ in range(11):
            page.keyboard.press("u")
        expect(page.locator("#announce")).to_have_text("Nothing is left to undo.", timeout=20_000)
        assert statuses() == ["suggested"] * 10
        toast, bar = (page.locator(place).bounding_box() for place in ("#announce", ".bulk"))
        assert toast is not None
        assert bar is not None
        assert toast["y"] + toast["height"] < bar["y"]
        for box in page.locator("[name=item][value^=tag]").all():
            box.check()
        page.locator("button", has_text="Reject all selected").press("Enter")
        page.locator(".said", has_text="Rejected 10").wait_for()
        page.locator("[data-item] [data-select]").first.focus()
        # Selected, several patches at once.
        before = page.locator(".queued.patch").count()
        page.keyboard.press("x")
        page.keyboard.press("j")
        page.keyboard.press("x")
        page.locator("button", has_text="Reject all selected").press("Enter")
        page.locator(".said", has_text="Rejected 2").wait_for()
        assert page.locator(".queued.patch").count() == before - 2
        page.keyboard.press("u")
        page.locator(".said", has_text="Taken back").wait_for()
        assert page.locator(".queued.patch").count() == before


def test_a_browser_signs_in_once_and_out_again(site: Site, tmp_path: Path) -> None:
    closed = Settings(home=tmp_path, api_token=SecretStr(TOKEN))
    with running_api(closed, site.url) as base, site.page(scheme="dark") as page:
        page.goto(f"{base}/hub/c/{site.store.plain}?page=2")
        page.wait_for_url(re.compile("/hub/sign-in[?]next="))
        assert serious(page) == []
        page.locator("#token").fill("not it")
        page.keyboard.press("Enter")
        page.locator("#wrong").wait_for()
        page.locator("#token").fill(TOKEN)
        page.keyboard.press("Enter")
        page.wait_for_url(re.compile(f"/hub/c/{site.store.plain}[?]page=2"))
        cookie = next(found for found in page.context.cookies() if found["name"] == "rivet_hub")
        assert (cookie["httpOnly"], cookie["sameSite"], cookie["path"]) == (True, "Strict", "/")
        assert page.evaluate("document.cookie") == ""
        page.locator("button", has_text="Sign out").click()
        page.wait_for_url("**/hub/sign-in")
    # The browser notes the refused token.
    assert [complaint for complaint in site.complaints if "403" not in complaint] == []
    site.complaints.clear()


def test_all_of_it_is_read_without_scripts(site: Site) -> None:
    with site.page(scripts=False) as page:
        page.goto(f"{site.base}/hub")
        page.locator("#q").fill("sessions_100")
        page.locator("#q").press("Enter")
        page.locator(".hit [data-open]").first.click()
        page.wait_for_url(re.compile("/hub/[cs]/"))
        page.goto(f"{site.base}/hub/c/{site.store.plain}")
        page.locator(".more a").first.click()
        page.wait_for_url("**/text?part=content")
        assert page.inner_text("main").count("A long report.") == 900
        page.goto(f"{site.base}/hub/health")
        page.locator("button[name=theme]").click()
        page.wait_for_url("**/hub/health")
        assert page.locator("html").get_attribute("data-theme") == "light"


def test_a_transcript_full_of_html_runs_nothing_and_is_shown(site: Site) -> None:
    with site.page() as page:
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        page.add_init_script("window.fired = []; window.fire = (what) => window.fired.push(what);")
        for path in (f"/hub/c/{site.store.hostile}", "/hub?q=hostile", "/hub", "/hub/review"):
            page.goto(site.base + path)
            for fold in page.locator("main details > summary").all():
                fold.click()
            page.wait_for_load_state("networkidle")
            assert "<script>fire(" in page.inner_text("main")
            assert page.evaluate("window.fired") == []
            assert page.locator("main h1").count() == 1
            assert page.locator("main a[href^=javascript], main img, main svg[onload], main style").count() == 0
        assert [url for url in asked if not url.startswith(site.base)] == []


class _Foreign(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = b"<!doctype html><title>Elsewhere</title><h1>Elsewhere</h1>"
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class calls it so
        """Says nothing."""


@pytest.fixture
def foreign_origin() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), _Foreign)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()
    thread.join(10)


_READ = """async (url) => {
    try { return (await (await fetch(url, {credentials: "include"})).text()).length } catch (error) { return "refused" }
}"""
_READ_BLIND = """async (url) => {
    try { const answer = await fetch(url, {mode: "no-cors", credentials: "include"}); return answer.status }
    catch (error) { return "refused" }
}"""
_EMBED = """(url) => new Promise((done) => {
    const frame = document.createElement("iframe");
    frame.onload = () => {
        try { done(frame.contentDocument?.body?.innerText ?? null) } catch (error) { done(null) }
    };
    frame.src = url;
    document.body.append(frame);
})"""
_POST = """([url, fields]) => new Promise((done) => {
    const frame = document.createElement("iframe");
    frame.name = "sink";
    document.body.append(frame);
    const form = document.createElement("form");
    Object.assign(form, {method: "post", action: url, target: "sink"});
    for (const [name, value] of Object.entries(fields)) {
        const input = document.createElement("input");
        Object.assign(input, {name, value});
        form.append(input);
    }
    document.body.append(form);
    frame.onload = () => done("answered");
    form.submit();
    setTimeout(() => done("silence"), 3000);
})"""


def test_a_page_of_another_origin_can_neither_read_nor_write(opened: Site, foreign_origin: str) -> None:
    with opened.page() as page:
        page.goto(f"{opened.base}/hub")
        page.goto(foreign_origin)
        for path in ("/hub", "/hub?q=sessions", f"/hub/c/{opened.store.plain}"):
            assert page.evaluate(_READ, opened.base + path) == "refused"
            assert page.evaluate(_READ_BLIND, opened.base + path) in {"refused", 0}
        assert not page.evaluate(_EMBED, f"{opened.base}/hub")
        page.evaluate(_POST, [f"{opened.base}/hub/theme", {"theme": "dark", "next": "/hub"}])
        assert [cookie for cookie in page.context.cookies() if cookie["name"] == "rivet_theme"] == []
        page.goto(f"{opened.base}/hub")
        assert page.locator("html").get_attribute("data-theme") == "auto"
    opened.complaints.clear()


def test_the_foreign_origin_is_another_one(foreign_origin: str, opened: Site) -> None:
    address = foreign_origin.removeprefix("http://").split(":")
    with socket.create_connection((address[0], int(address[1])), timeout=10):
        assert foreign_origin != opened.base
