#!/usr/bin/env python3
"""The page of a live server in headless Chromium: it fills, goes on, and asks for nothing but its figures.

Usage: live_page_test.py MAKE_LIVE [PICTURES]      exit 77: skipped

MAKE_LIVE prints the page and a server's figures (make_live.cc); a stand-in of a server hands them out and lets them
grow. PICTURES: a folder that receives what the page looks like.
"""

import http.server
import json
import os
import subprocess
import sys
import threading
import time
import unittest
import urllib.parse

from headless import Browser, chromium


class Server(http.server.ThreadingHTTPServer):
    """`more` seconds of the clock have passed since the figures were made; it is `down`, or wants a `key`."""

    daemon_threads = True

    def __init__(self, make_live):
        super().__init__(("127.0.0.1", 0), Handler)
        self.page = subprocess.run([make_live, "page"], check=True, capture_output=True).stdout
        self.figures = json.loads(subprocess.run([make_live, "data"], check=True, capture_output=True).stdout)
        self.more, self.down, self.key, self.asked, self.sent = 0, False, None, [], []
        self.replica = None  # that was asked for last
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def data(self, after):
        figures = json.loads(json.dumps(self.figures))
        figures["now"] += 10 * self.more
        figures["running"] += self.more
        figures["finished"] += 100 * self.more
        for second in range(1, self.more + 1):
            sample = list(figures["samples"][-1])
            sample[0] += 10
            figures["samples"].append(sample)
        figures["samples"] = [s for s in figures["samples"] if s[0] > after]
        return json.dumps(figures).encode()


class Handler(http.server.BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def do_GET(self):
        server, url = self.server, urllib.parse.urlparse(self.path)
        if server.down:
            return self.answer(503, "text/plain", b"down")
        if url.path == "/live/data":
            if server.key and self.headers.get("Authorization") != f"Bearer {server.key}":
                return self.answer(401, "text/plain", b"no")
            asked = urllib.parse.parse_qs(url.query)
            after = float(asked["after"][0])
            server.asked.append(after)
            server.replica = asked.get("replica", [None])[0]
            body = server.data(after)
            server.sent.append(len(body))
            return self.answer(200, "application/json", body)
        if url.path in ("/", "/live"):
            return self.answer(200, "text/html; charset=utf-8", server.page)
        self.answer(404, "text/plain", b"nothing")

    def answer(self, status, kind, body):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


TILES = ("Object.fromEntries([...document.querySelectorAll('.tile')].map(t => [t.querySelector('.name').textContent,"
         " t.querySelector('.value').textContent.trim()]))")
DRAWN = """[...document.querySelectorAll('canvas')].map(c => {
  const copy = new OffscreenCanvas(c.width, c.height).getContext('2d');
  copy.drawImage(c, 0, 0);
  return copy.getImageData(0, 0, c.width, c.height).data.some((v, k) => k % 4 === 3 && v !== 0);
})"""


class LivePage(unittest.TestCase):
    make_live = pictures = None

    @classmethod
    def setUpClass(cls):
        cls.browser = Browser().__enter__()

    @classmethod
    def tearDownClass(cls):
        cls.browser.__exit__()

    def setUp(self):
        self.server = Server(self.make_live)
        self.address = f"http://127.0.0.1:{self.server.server_port}"
        self.addCleanup(self.server.server_close)
        self.addCleanup(self.server.shutdown)

    def open(self, path="/", **more):
        page = self.browser.open(self.address + path, **more)
        page.wait("document.querySelectorAll('.tile').length === 8")
        return page

    def picture(self, page, name):
        if self.pictures:
            page.picture(os.path.join(self.pictures, name))

    def check_quiet(self, page):
        self.assertEqual(page.complaints(), [])
        for url in page.requested():
            self.assertTrue(url.startswith((self.address + "/", "data:")), url)

    def test_it_fills_and_goes_on(self):
        page = self.open()
        before = page.value(TILES)
        self.assertEqual(before["Running"], "37 requests")
        self.assertEqual(before["KV cache held"], "25.0 %")
        self.assertEqual(page.value("document.title"), 'my "own" model: tpsim serve')
        self.assertEqual(page.value(DRAWN), [True] * 8)
        self.picture(page, "live.png")
        self.server.more = 3
        page.wait(TILES + ".Running === '40 requests'")
        self.assertEqual(page.value(TILES)["Finished"], "1,290 requests")
        self.assertEqual(page.value("samples.length"), 63)
        self.assertEqual(page.value("Chart.getChart(document.querySelector('canvas')).data.datasets[0].data.length"), 63)
        # What it has, it does not ask for again.
        self.assertEqual(self.server.asked[0], -1)
        self.assertEqual(self.server.asked[1], 600)
        self.assertLess(max(self.server.sent[1:]), 3000)
        self.assertNotRegex(page.value("document.querySelector('main').textContent"), "NaN|undefined|Infinity")
        self.check_quiet(page)

    def test_narrow_and_dark(self):
        page = self.open("/live", width=400, height=3000, dark=True)
        self.assertLessEqual(page.value("document.documentElement.scrollWidth"), 400)
        self.assertEqual(page.value(DRAWN), [True] * 8)
        self.picture(page, "live_dark.png")
        page.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "light"}])
        page.wait("getComputedStyle(document.documentElement).getPropertyValue('--card').trim() === '#fff'")
        self.assertEqual(page.value(DRAWN), [True] * 8)
        self.check_quiet(page)

    def test_a_shorter_past(self):
        page = self.open()
        page.value("[...document.querySelectorAll('#tools button')].find(b => b.textContent === 'last 30 s').click()")
        self.assertEqual(page.value("Chart.getChart(document.querySelector('canvas')).data.datasets[0].data.length"), 30)

    def test_a_server_that_goes_and_another_that_comes(self):
        page = self.open()
        self.server.down = True
        page.wait("/cannot be asked.*503/.test(document.querySelector('#notices').textContent)")
        self.server.figures["now"] = 5
        self.server.figures["samples"] = [[5] + self.server.figures["samples"][0][1:]]
        self.server.down = False
        page.wait("!/cannot be asked/.test(document.querySelector('#notices').textContent)")
        page.wait("latest.now === 5")
        page.wait("samples.length <= 1")

    def test_what_it_warns_of(self):
        page = self.open()
        page.wait("/behind the wall clock/.test(document.querySelector('#notices').textContent)")  # 0.25 s
        self.server.figures["draining"] = True
        page.wait("/being shut down/.test(document.querySelector('#notices').textContent)")

    def test_replicas(self):
        self.assertTrue(self.open().value("document.querySelector('#fleet').hidden"))
        self.server.figures["description"].update(replicas=2, router_policy="cache_aware")
        self.server.figures["replicas"] = [
            {"hardware": "h200-sxm", "accepted": 1000 + number, "finished": 5, "running": 3, "waiting": 0, "kv_used": 250,
             "kv_pool": 1000, "prompt_tokens": 100, "cached_tokens": 40, "gen_throughput": 12.5, "utilization": 0.5}
            for number in range(2)]
        page = self.open()
        page.wait("document.querySelectorAll('#replicas tr').length === 3")
        self.assertIn("1: h200-sxm1,001530", page.value("document.querySelector('#replicas').textContent"))
        self.assertIsNone(self.server.replica)
        page.value("[...document.querySelectorAll('#which button')].find(b => b.textContent === '1').click()")
        for _ in range(50):
            if self.server.replica == "1":
                break
            time.sleep(0.1)
        self.assertEqual(self.server.replica, "1")
        self.check_quiet(page)

    def test_a_key(self):
        self.server.key = "secret"
        page = self.browser.open(self.address + "/")
        page.wait("/#key=/.test(document.querySelector('#notices').textContent)")
        self.open("/#key=secret")
        for url in page.requested():
            self.assertNotIn("secret", url)

    def test_nobody_looks(self):
        page = self.open()
        page.value("Object.defineProperty(document, 'hidden', { value: true, configurable: true }), 0")
        time.sleep(1.5)
        asked = len(self.server.asked)
        time.sleep(2.5)
        self.assertEqual(len(self.server.asked), asked)
        page.value("Object.defineProperty(document, 'hidden', { value: false }), document.dispatchEvent(new Event('visibilitychange'))")
        page.wait("true")
        time.sleep(1.5)
        self.assertGreater(len(self.server.asked), asked)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    if chromium() is None:
        print("skipped: no chromium here")
        sys.exit(77)
    LivePage.make_live = sys.argv[1]
    LivePage.pictures = sys.argv[2] if len(sys.argv) > 2 else None
    unittest.main(argv=sys.argv[:1], verbosity=2)
