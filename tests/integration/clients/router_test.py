#!/usr/bin/env python3
"""SGLang's own router in front of four `tpsim serve` processes.

Usage: router_test.py TPSIM CLIENTS [TEST …]
"""

import concurrent.futures
import http.client
import json
import os
import signal
import socket
import subprocess
import time

import client_tests
from client_tests import ClientTest

WORKERS = 4


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Router(ClientTest):
    def route(self, policy, *words):
        self.workers = [self.serve("--served-model-name", "m", "--speedup", "4") for _ in range(WORKERS)]
        self.port = free_port()
        log = open(self.path("router.log"), "w")  # noqa: SIM115: the router writes to it
        self.addCleanup(log.close)
        urls = [f"http://127.0.0.1:{worker.port}" for worker in self.workers]
        self.router = subprocess.Popen(
            [self.python, "-m", "sglang_router.launch_router", "--host", "127.0.0.1", "--port", str(self.port), "--policy",
             policy, "--prometheus-port", str(free_port()), "--worker-startup-check-interval", "1", *words,
             "--worker-urls", *urls], stdout=log, stderr=log, start_new_session=True)
        self.addCleanup(self.end_router)
        until = time.monotonic() + 60
        while time.monotonic() < until and self.router.poll() is None:
            try:
                if self.ask("GET", "/readiness")[0] == 200:
                    return
            except OSError:
                pass
            time.sleep(0.2)
        with open(self.path("router.log")) as file:
            self.fail("the router does not come up: " + file.read()[-4000:])

    def end_router(self):
        if self.router.poll() is None:
            os.killpg(self.router.pid, signal.SIGKILL)
        self.router.wait()

    def ask(self, method, path, body=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request(method, path, json.dumps(body) if body else None, {"content-type": "application/json"})
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()

    def generate(self, text, tokens=12, stream=False):
        return self.ask("POST", "/generate", {"text": text, "stream": stream,
                                              "sampling_params": {"max_new_tokens": tokens, "ignore_eos": True}})

    @staticmethod
    def answered(worker):
        """Requests that it has answered, by SGLang's counter."""
        for line in worker.ask("GET", "/metrics")[1].splitlines():
            if line.startswith("sglang:num_requests_total{"):
                return int(float(line.rsplit(" ", 1)[1]))
        return 0

    def test_all_routes_through_it(self):
        self.route("round_robin")
        status, body = self.generate("Once upon a time")
        self.assertEqual(status, 200, body)
        self.assertEqual(json.loads(body)["meta_info"]["completion_tokens"], 12)
        status, body = self.generate("Once upon a time", stream=True)
        self.assertEqual(status, 200)
        self.assertTrue(body.rstrip().endswith("data: [DONE]"), body[-200:])
        chat = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 5}
        status, body = self.ask("POST", "/v1/chat/completions", chat)
        self.assertEqual((status, json.loads(body)["usage"]["completion_tokens"]), (200, 5))
        status, body = self.ask("POST", "/v1/chat/completions",
                                {**chat, "stream": True, "stream_options": {"include_usage": True}})
        self.assertEqual(status, 200)
        self.assertIn('"completion_tokens":5', body.replace(" ", ""))
        status, body = self.ask("POST", "/v1/completions", {"model": "m", "prompt": "x", "max_tokens": 5})
        self.assertEqual((status, json.loads(body)["usage"]["completion_tokens"]), (200, 5))
        status, body = self.ask("GET", "/v1/models")
        self.assertEqual((status, [model["id"] for model in json.loads(body)["data"]]), (200, ["m"]))
        status, body = self.ask("GET", "/workers")
        workers = json.loads(body)["workers"]
        self.assertEqual((len(workers), [worker["is_healthy"] for worker in workers]), (WORKERS, [True] * WORKERS))

    def test_all_workers_share_the_load(self):
        self.route("round_robin")
        with concurrent.futures.ThreadPoolExecutor(32) as pool:
            statuses = list(pool.map(lambda number: self.generate(f"Number {number}" * 50)[0], range(80)))
        self.assertEqual(statuses, [200] * 80)
        counts = [self.answered(worker) for worker in self.workers]
        print("each worker answered", counts)
        self.assertEqual(sum(counts), 80)
        self.assertTrue(all(15 <= count <= 25 for count in counts), counts)

    def test_a_cache_aware_router_finds_the_prefix(self):
        """Each conversation stays where its prefix is: most of its prompt is found in that worker's cache."""
        self.route("cache_aware")
        found = []
        for turn in range(3):
            for conversation in range(8):
                text = "".join(f"{conversation} and {number}; " for number in range(300 * (turn + 1)))
                status, body = self.generate(text, 4)
                self.assertEqual(status, 200)
                meta = json.loads(body)["meta_info"]
                found.append(meta["cached_tokens"] / meta["prompt_tokens"])
        print("found of the prompts:", [round(share, 2) for share in found])
        self.assertGreater(min(found[8:16]), 0.4)
        self.assertGreater(min(found[16:]), 0.6)

    def test_a_worker_goes_and_the_others_serve_on(self):
        self.route("round_robin", "--health-check-interval-secs", "1", "--health-failure-threshold", "1")
        self.workers[1].signal()
        self.assertEqual(self.workers[1].wait(30), 0)
        time.sleep(3)
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            statuses = list(pool.map(lambda number: self.generate(f"after {number}")[0], range(40)))
        self.assertEqual(statuses, [200] * 40)


if __name__ == "__main__":
    client_tests.main()
