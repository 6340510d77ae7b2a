#!/usr/bin/env python3
"""What a running `tpsim serve` shows: /metrics, as Prometheus' own client reads them, and the page in a real browser,
while clients come and go.

Usage: live_server_test.py TPSIM [CLASS ...]

Parses /metrics with the PyPI package prometheus_client where it is there, and by hand where it is not. Without chromium
the page is not looked at. TPSIM_PICTURES: a folder that receives what the page looks like.
"""

import collections
import concurrent.futures
import http.client
import json
import os
import signal
import subprocess
import sys
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "browser"))
from headless import Browser, chromium  # noqa: E402

try:
    from prometheus_client.parser import text_string_to_metric_families
except ImportError:
    text_string_to_metric_families = None


class Server(unittest.TestCase):
    program = None
    speedup = 20
    extra = ()

    def setUp(self):
        self.child = subprocess.Popen(
            [self.program, "serve", "--model-path", "llama-3.1-8b", "--hardware", "h200-sxm", "--port", "0",
             "--speedup", str(self.speedup), "--skip-tokenizer-init", *self.extra],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(self.stop)
        line = self.child.stdout.readline()
        self.assertIn(" at http://", line, line or self.child.stderr.read())
        self.address = line.split(" at ")[1].strip()
        self.port = int(self.address.rsplit(":", 1)[1])

    def stop(self):
        if self.child.poll() is None:
            self.child.send_signal(signal.SIGTERM)
            try:
                self.child.wait(timeout=30)
            except subprocess.TimeoutExpired:
                self.child.kill()
                self.child.wait()
        self.child.stdout.close()
        self.child.stderr.close()

    def get(self, path, **headers):
        """Status, headers and body."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request("GET", path, headers=headers)
            answer = connection.getresponse()
            return answer.status, dict((k.lower(), v) for k, v in answer.getheaders()), answer.read()
        finally:
            connection.close()

    def generate(self, prompt, tokens):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        try:
            body = json.dumps({"input_ids": prompt, "sampling_params": {"max_new_tokens": tokens, "ignore_eos": True}})
            connection.request("POST", "/generate", body, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())
        finally:
            connection.close()

    def load(self, requests, prompt_length, tokens, workers=20):
        """Prompts that share their first half; what was answered."""
        shared = list(range(1, prompt_length // 2 + 1))
        prompts = [shared + [1000 + i] * (prompt_length - len(shared)) for i in range(requests)]
        with concurrent.futures.ThreadPoolExecutor(workers) as pool:
            return list(pool.map(lambda prompt: self.generate(prompt, tokens), prompts))

    def metrics(self):
        """{(sample, sorted labels): value} and {family: type}."""
        status, headers, body = self.get("/metrics")
        self.assertEqual(status, 200)
        self.assertTrue(headers["content-type"].startswith("text/plain; version=0.0.4"), headers)
        values, types = {}, {}
        if text_string_to_metric_families is not None:
            for family in text_string_to_metric_families(body.decode()):
                types[family.name] = family.type
                for sample in family.samples:
                    key = sample.name, tuple(sorted(sample.labels.items()))
                    self.assertNotIn(key, values, "the same sample twice")
                    values[key] = sample.value
            return values, types
        for line in body.decode().splitlines():
            if line.startswith("# TYPE"):
                types[line.split()[2].removesuffix("_total")] = line.split()[3]
            elif not line.startswith("#"):
                name, number = line.rsplit(" ", 1)
                name, _, labels = name.partition("{")
                pairs = [p.split("=", 1) for p in labels.rstrip("}").split('",') if p]
                values[name, tuple(sorted((k, v.strip('"')) for k, v in pairs))] = float(number)
        return values, types

    def total(self, values, name, **labels):
        found = [v for (n, of), v in values.items() if n == name and set(labels.items()) <= set(of)]
        self.assertTrue(found, name)
        return sum(found)


class Metrics(Server):
    def test_they_count_what_was_served(self):
        answers = self.load(60, 400, 32)
        self.assertEqual([status for status, _ in answers], [200] * 60)
        time.sleep(0.3)  # until the last is published
        values, types = self.metrics()
        said = collections.Counter()
        for _, answer in answers:
            for key in ("prompt_tokens", "completion_tokens", "cached_tokens"):
                said[key] += answer["meta_info"][key]
        self.assertEqual(self.total(values, "sglang:num_requests_total"), 60)
        self.assertEqual(self.total(values, "sglang:prompt_tokens_total"), said["prompt_tokens"])
        self.assertEqual(self.total(values, "sglang:generation_tokens_total"), said["completion_tokens"])
        self.assertEqual(self.total(values, "sglang:cached_tokens_total"), said["cached_tokens"])
        self.assertGreater(said["cached_tokens"], 0)
        self.assertEqual(self.total(values, "sglang:time_to_first_token_seconds_count"), 60)
        self.assertEqual(self.total(values, "sglang:e2e_request_latency_seconds_count"), 60)
        self.assertEqual(self.total(values, "sglang:inter_token_latency_seconds_count"), 60 * 31)
        self.assertEqual(self.total(values, "sglang:queue_time_seconds_count"), 60)
        self.assertEqual(self.total(values, "sglang:num_running_reqs"), 0)
        self.assertEqual(self.total(values, "sglang:num_queue_reqs"), 0)
        self.assertEqual(self.total(values, "sglang:http_responses_total", endpoint="/generate", status_code="200"), 60)
        pool = sum(self.total(values, f"sglang:kv_{part}_tokens") for part in ("used", "evictable", "available"))
        self.assertEqual(pool, self.total(values, "sglang:max_total_num_tokens"))
        self.assertEqual(types["sglang:time_to_first_token_seconds"], "histogram")
        self.assertEqual(types["sglang:num_running_reqs"], "gauge")
        # The page says the same.
        data = json.loads(self.get("/live/data")[2])
        self.assertEqual((data["finished"], data["generation_tokens"]), (60, said["completion_tokens"]))
        self.assertEqual(data["ttft"]["count"], 60)

    def test_counters_only_grow(self):
        self.load(5, 100, 8)
        before, types = self.metrics()
        self.load(5, 100, 8)
        after, _ = self.metrics()
        for (name, labels), value in before.items():
            family = name.removesuffix("_total").removesuffix("_bucket").removesuffix("_count")
            if name.endswith(("_total", "_bucket", "_count")) and types.get(family) in ("counter", "histogram"):
                self.assertGreaterEqual(after[name, labels], value, name)

    def test_a_busy_server_answers_at_once(self):
        with concurrent.futures.ThreadPoolExecutor(100) as pool:
            calls = [pool.submit(self.generate, [i + 1] * 50, 2000) for i in range(100)]
            # Busy as it begins; on a slow machine the requests end before the last answer is read.
            deadline = time.monotonic() + 20
            while not (running := self.total(self.metrics()[0], "sglang:num_running_reqs")) and time.monotonic() < deadline:
                time.sleep(0.05)
            self.assertGreater(running, 0)
            slowest = 0
            for path in ("/metrics", "/live/data", "/live/data?after=1e9", "/live") * 10:
                begin = time.monotonic()
                self.assertEqual(self.get(path)[0], 200)
                slowest = max(slowest, time.monotonic() - begin)
            for call in calls:
                self.assertEqual(call.result()[0], 200)
        self.assertLess(slowest, 1.0)
        self.assertLess(len(self.get("/live/data?after=1e9")[2]), 3000)

    def test_after_may_be_anything(self):
        for query in ("", "?after=", "?after=x", "?after=nan", "?after=-1", "?after=1e999", "?other=1", "?after=%00"):
            status, headers, body = self.get("/live/data" + query)
            self.assertEqual(status, 200, query)
            self.assertEqual(headers["content-type"].split(";")[0], "application/json")
            self.assertIsInstance(json.loads(body)["samples"], list)


class WithKey(Server):
    extra = ("--api-key", "secret")

    def test_who_may_look(self):
        self.assertEqual(self.get("/metrics")[0], 200)  # as SGLang's
        self.assertEqual(self.get("/live")[0], 200)
        self.assertEqual(self.get("/live/data")[0], 401)
        self.assertEqual(self.get("/live/data", Authorization="Bearer secret")[0], 200)


@unittest.skipIf(chromium() is None, "no chromium here")
class Page(Server):
    speedup = 1

    def test_it_shows_what_happens(self):
        with Browser() as browser, concurrent.futures.ThreadPoolExecutor(1) as pool:
            load = pool.submit(self.load, 300, 600, 200, 40)
            page = browser.open(self.address + "/live")
            page.wait("document.querySelectorAll('.tile').length === 8")
            page.wait("latest.running > 0 && latest.finished > 0")
            first = page.value("latest.finished")
            page.wait("latest.finished > " + str(first))
            page.wait("samples.length >= 3")
            if folder := os.environ.get("TPSIM_PICTURES"):
                page.wait("samples.length >= 8 || latest.running === 0")
                page.picture(os.path.join(folder, "live_server.png"))
            answers = load.result()
            self.assertEqual([status for status, _ in answers], [200] * 300)
            page.wait("latest.finished === 300 && latest.running === 0")
            self.assertNotRegex(page.value("document.querySelector('main').textContent"), "NaN|undefined|Infinity")
            self.assertEqual(page.complaints(), [])
            for url in page.requested():
                self.assertTrue(url.startswith((self.address + "/", "data:")), url)
            # A browser that opens the address gets the page, a client what SGLang says.
            root = browser.open(self.address + "/")
            root.wait("document.querySelectorAll('.tile').length === 8")
        self.assertNotIn(b"<html", self.get("/", Accept="*/*")[2])


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    Server.program = sys.argv[1]
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]], verbosity=2)
