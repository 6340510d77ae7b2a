#!/usr/bin/env python3
"""`tpsim serve` of several replicas behind one router, against `tpsim run` where the two can be compared.

Usage: fleet_test.py TPSIM [CLASS ...]
"""

import csv
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest

from server import DEPLOYMENT, ServerTest, connect, generate, request


def prompt(number, tokens=1024):
    return [1000 * number + 7 * i % 991 for i in range(tokens)]


class Fleet(ServerTest):
    def serve_fleet(self, policy, *flags):
        return self.serve("--dp-size", "3", "--router-policy", policy, "--speedup", "20", *flags)

    def shares(self, server, figure="requests"):
        text = server.ask("GET", "/metrics")[1]
        found = re.findall(rf'^tpsim:replica_{figure}_total\{{.*replica="(\d+)".*\}} ([\d.]+)$', text, re.M)
        return [int(float(count)) for _, count in sorted(found)]

    def ask_all(self, server, prompts):
        """All at once; the tokens that were found in caches, of each."""
        cached = [None] * len(prompts)

        def ask(number):
            body = json.loads(server.ask("POST", "/generate", generate(200, prompts[number]))[1])
            cached[number] = body["meta_info"]["cached_tokens"]

        threads = [threading.Thread(target=ask, args=(number,)) for number in range(len(prompts))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return cached

    def shares_of_run(self, prompts, *flags, columns=("replica",), replicas=3):
        """Of `tpsim run`, where each prompt comes when the answer before it is long over; and what `columns` name."""
        with tempfile.TemporaryDirectory() as folder:
            trace = os.path.join(folder, "trace.jsonl")
            with open(trace, "w") as file:
                for number, of in enumerate(prompts):
                    blocks = [2 * of, 2 * of + 1]
                    file.write(json.dumps({"timestamp": 10000 * number, "input_length": 1024, "output_length": 8,
                                           "hash_ids": blocks}) + "\n")
            report = os.path.join(folder, "report")
            done = subprocess.run([self.program, "run", *flags, "--trace", trace, "--report-dir", report], capture_output=True, text=True, timeout=120)
            self.assertEqual(done.returncode, 0, done.stderr)
            with open(os.path.join(report, "requests.csv")) as file:
                chosen = [int(row[column]) for row in csv.DictReader(file) for column in columns]
        return [chosen.count(i) for i in range(replicas)]

    def test_one_after_the_other_as_in_a_run(self):
        numbers = [1, 2, 3, 1, 2, 4, 4, 5, 1, 1]
        for policy in ("round_robin", "cache_aware"):
            with self.subTest(policy):
                server = self.serve_fleet(policy)
                for number in numbers:
                    self.assertEqual(server.ask("POST", "/generate", generate(8, prompt(number)))[0], 200)
                self.assertEqual(self.shares(server), self.shares_of_run(numbers, *DEPLOYMENT, "--dp-size", "3",
                                                                         "--router-policy", policy))

    def test_what_was_sent_before_goes_where_it_was(self):
        server = self.serve_fleet("cache_aware")
        prompts = [prompt(number) for number in range(12)]
        self.assertEqual(self.ask_all(server, prompts), [0] * 12)
        before = self.shares(server)
        self.assertGreater(min(before), 0)
        self.assertEqual(self.ask_all(server, prompts), [1023] * 12)
        self.assertEqual(self.shares(server), [2 * share for share in before])
        self.assertEqual(self.shares(server, "cached_tokens"), [1023 * share for share in before])

    def test_routing_keys(self):
        """Policy manual keeps requests of one X-SMG-Routing-Key together, and sends a new one where the fewest are."""
        server = self.serve_fleet("manual", "--router-assignment-mode", "min_group")
        for key in ("a", "a", "a"):
            server.ask("POST", "/generate", generate(4), headers={"X-SMG-Routing-Key": key})
        self.assertEqual(sorted(self.shares(server)), [0, 0, 3])
        server = self.serve_fleet("manual", "--router-assignment-mode", "min_group")
        threads = [threading.Thread(target=server.ask, args=("POST", "/generate", generate(3000)),
                                    kwargs={"headers": {"X-SMG-Routing-Key": key}}) for key in ("a", "b", "c", "a", "b")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(sorted(self.shares(server)), [1, 2, 2])

    def test_limits_of_the_router(self):
        """Statuses as of sglang_router 0.3.2 before two workers, and before a prefill and a decode server: two at a time,
        others wait half a second for the bucket, or not at all."""
        pairs = ("--pd-disaggregation", "--prefill", "1", "--decode", "1")
        for flags in (("--dp-size", "2", "--router-policy", "round_robin"), pairs):
            for limits, late, status in (((), 0.5, 408), (("--router-queue-size", "0"), 0, 429),
                                         (("--router-rate-limit-tokens-per-second", "1000"), 0, 200)):
                with self.subTest(flags=flags, limits=limits):
                    server = self.serve(*flags, "--router-max-concurrent-requests", "2", *limits)
                    answers = []

                    def ask(stream):
                        began = time.monotonic()
                        status, body = server.ask("POST", "/generate", generate(200, stream=stream))
                        answers.append((status, time.monotonic() - began, body))

                    clients = [threading.Thread(target=ask, args=(i % 2 == 0,)) for i in range(6)]
                    for client in clients:
                        client.start()
                        time.sleep(0.02)
                    for client in clients:
                        client.join()
                    self.assertEqual(sorted(answer[0] for answer in answers), [200] * 2 + [status] * 4)
                    for answer in answers:
                        if answer[0] != 200:
                            self.assertEqual(answer[2], "")
                            self.assertLess(abs(answer[1] - late), 0.2, answer)
                    self.assertEqual(server.ask("POST", "/generate", generate(2))[0], 200)
                    server.wait_until_idle()

    def test_who_waits_goes_in_when_another_leaves(self):
        server = self.serve("--dp-size", "2", "--router-policy", "round_robin", "--router-max-concurrent-requests", "1")
        answers = []
        clients = [threading.Thread(target=lambda: answers.append(server.ask("POST", "/generate", generate(40))[0]))
                   for _ in range(3)]
        for client in clients:
            client.start()
        for client in clients:
            client.join()
        self.assertEqual(answers, [200] * 3)  # 0.25 s each, within the second that the bucket takes

    def test_a_controller_of_one_server(self):
        server = self.serve("--dp-size", "2", "--load-balance-method", "round_robin", "--speedup", "20")
        for _ in range(4):
            self.assertEqual(server.ask("POST", "/generate", generate(4))[0], 200)
        self.assertEqual(self.shares(server), [2, 2])
        self.assertEqual(server.ask("GET", "/workers")[0], 404)
        self.assertEqual(len(json.loads(server.ask("GET", "/get_load")[1])), 2)
        self.assertEqual(len(server.info()["internal_states"]), 2)

    def fleet_file(self, text):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        path = os.path.join(folder.name, "fleet.yaml")
        with open(path, "w") as file:
            file.write(text)
        return path

    def test_unequal_servers_of_a_file(self):
        path = self.fleet_file("router: --policy round_robin\nworkers:\n"
                               "  - {count: 2, hardware: h200-sxm, args: --model-path llama-3.1-8b}\n"
                               "  - {hardware: l40s, args: --model-path llama-3.1-8b --context-length 8192}\n")
        server = self.serve("--speedup", "20", deployment=["--fleet", path])
        for _ in range(4):
            self.assertEqual(server.ask("POST", "/generate", generate(4))[0], 200)
        self.assertEqual(self.shares(server), [2, 1, 1])
        page = json.loads(server.ask("GET", "/live/data")[1])
        self.assertEqual([r["hardware"] for r in page["replicas"]], ["h200-sxm", "h200-sxm", "l40s"])
        self.assertEqual(page["description"]["hardware"], "h200-sxm + l40s")
        pools = [load["max_total_num_tokens"] for load in json.loads(server.ask("GET", "/v1/loads")[1])["loads"]]
        self.assertEqual(pools[0], pools[1])
        self.assertGreater(pools[1], pools[2])
        self.assertEqual(page["description"]["max_total_num_tokens"], sum(pools))

    def test_pairs_of_a_file_as_in_a_run(self):
        path = self.fleet_file("router: --prefill-policy cache_aware --decode-policy round_robin\n"
                               "decode:\n  - {count: 2, hardware: h200-sxm, args: --model-path llama-3.1-8b}\n"
                               "prefill:\n  - {count: 3, hardware: h200-sxm, args: --model-path llama-3.1-8b --tp 2}\n")
        server = self.serve("--speedup", "20", deployment=["--fleet", path])
        numbers = [1, 2, 3, 1, 2, 4, 1]
        for number in numbers:
            self.assertEqual(server.ask("POST", "/generate", generate(8, prompt(number)))[0], 200)
        self.assertEqual(self.shares(server),
                         self.shares_of_run(numbers, "--fleet", path, columns=("prefill_replica", "decode_replica"), replicas=5))
        self.assertEqual(sum(self.shares(server, "cached_tokens")[:3]), 3 * 1023)
        self.assertEqual(json.loads(server.ask("GET", "/workers")[1])["stats"],
                         {"prefill_count": 3, "decode_count": 2, "regular_count": 0})
        self.assertNotIn("decode", server.info())  # to sglang.bench_serving a list of servers
        self.assertEqual(server.ask("POST", "/generate", {"input_ids": "none"})[0], 400)
        client = connect(server)  # who leaves in the middle of an answer
        client.sendall(request(generate(100000, stream=True)))
        client.recv(1 << 16)
        client.close()
        while not re.search(r"^sglang:num_aborted_requests_total\{.*\} 1.0$", server.ask("GET", "/metrics")[1], re.M):
            pass
        server.wait_until_idle()
        server.signal(signal.SIGINT)
        self.assertEqual(server.wait(), 0)

    MODELS = ("router: --enable-igw --policy round_robin --worker-urls http://a http://b\nworkers:\n"
              "  - {count: 2, hardware: h200-sxm, args: --model-path llama-3.1-8b --served-model-name chat}\n"
              "  - {count: 2, hardware: h200-sxm, args: --model-path qwen3-8b --served-model-name qwen --context-length 8192}\n")

    def test_two_models_behind_one_router(self):
        """As sglang_router 0.3.2 with --enable-igw did in front of four `tpsim serve`, told of them by POST /workers."""
        server = self.serve("--speedup", "20", deployment=["--fleet", self.fleet_file(self.MODELS)])

        def chat(model, **more):
            body = {"messages": [{"role": "user", "content": "x"}], "max_tokens": 2, **more}
            status, answer = server.ask("POST", "/v1/chat/completions", body | ({} if model is None else {"model": model}))[:2]
            return status, json.loads(answer)

        last, order = self.shares(server), ""
        for number, model in enumerate("ccqqcqcqccccqcqq"):
            status, answer = chat({"c": "chat", "q": "qwen"}[model])
            self.assertEqual((status, answer["model"]), (200, {"c": "chat", "q": "qwen"}[model]))
            now = self.shares(server)
            order += "ABDC"[[a - b for a, b in zip(now, last)].index(1)]
            last = now
            if number % 5 == 0:  # who is refused takes no turn
                self.assertEqual(chat("gpt")[0], 503)
        self.assertEqual(order, "ABDCACACABABDBDC")  # the real one's
        unknown = {"error": {"type": "Service Unavailable", "code": "no_available_workers",
                             "message": "No available workers (all circuits open or unhealthy)"}}
        for model in ("gpt", "", None, "llama-3.1-8b"):
            self.assertEqual(chat(model), (503, unknown), model)
        self.assertEqual(chat("gpt", stream=True), (503, unknown))
        body = {"prompt": "a", "max_tokens": 2}
        self.assertEqual(server.ask("POST", "/v1/completions", body)[:2],
                         (422, "Failed to deserialize the JSON body into the target type: missing field `model` "
                               f"at line 1 column {len(json.dumps(body))}"))
        self.assertEqual(server.ask("POST", "/v1/completions", body | {"model": "qwen"})[0], 200)
        self.assertEqual(server.ask("POST", "/generate", generate(2))[:2],
                         (400, "Model must be specified. Available models: chat, qwen"))
        self.assertEqual(server.ask("POST", "/generate", generate(2) | {"model": "qwen"})[0], 200)
        self.assertEqual(server.ask("POST", "/generate", generate(2) | {"model": "gpt"})[0], 503)
        models = json.loads(server.ask("GET", "/v1/models")[1])["data"]
        self.assertEqual([(model["id"], model["max_model_len"] > 8192) for model in models], [("chat", True), ("qwen", False)])
        self.assertEqual(json.loads(server.ask("GET", "/v1/models/qwen")[1])["id"], "qwen")
        self.assertEqual(server.ask("GET", "/v1/models/gpt")[0], 404)
        workers = json.loads(server.ask("GET", "/workers")[1])["workers"]
        self.assertEqual([(worker["model_id"], worker["metadata"]["model_path"]) for worker in workers],
                         2 * [("chat", "llama-3.1-8b")] + 2 * [("qwen", "qwen3-8b")])
        self.assertEqual([r["model"] for r in json.loads(server.ask("GET", "/live/data")[1])["replicas"]],
                         ["chat", "chat", "qwen", "qwen"])
        long = {"input_ids": prompt(1, 9000), "sampling_params": {"max_new_tokens": 2}}
        self.assertEqual([server.ask("POST", "/generate", long | {"model": model})[0] for model in ("chat", "qwen")], [200, 400])
        self.assertEqual(server.ask("POST", "/tokenize", {"prompt": "a", "model": "qwen"})[0], 200)
        self.assertEqual(server.ask("POST", "/tokenize", {"prompt": "a"})[0], 404)

    def test_one_model_of_several_that_there_could_be(self):
        path = self.fleet_file("\n".join(line for line in self.MODELS.splitlines() if "qwen" not in line))
        server = self.serve("--speedup", "20", deployment=["--fleet", path])
        self.assertEqual(server.ask("POST", "/generate", generate(2))[0], 200)  # what else
        self.assertEqual(server.ask("POST", "/generate", generate(2) | {"model": "qwen"})[0], 503)
        self.assertEqual(server.ask("POST", "/v1/completions", {"prompt": "a", "max_tokens": 2, "model": "chat"})[0], 200)

    def test_refusals(self):
        pairs = self.fleet_file("prefill:\n  - {hardware: h200-sxm, args: --model-path llama-3.1-8b}\n")
        for flags, sentence in ((["--fleet", pairs], "decode"),
                                (["--fleet", self.fleet_file(self.MODELS), "--served-model-name", "a"],
                                 "--served-model-name a: behind a router with --enable-igw it stands in the args of"),
                                (["--fleet", self.fleet_file(self.MODELS), "--tokenizer-path", "/tmp"],
                                 "--tokenizer-path /tmp: is of one model"),
                                (["--fleet", "nowhere.yaml"], "--fleet nowhere.yaml: No such file"),
                                (["--fleet", pairs, "--tp", "2"], "--tp-size: is of a server; with --fleet it stands in"),
                                ([*DEPLOYMENT, "--dp-size", "2", "--pp-size", "2"], "--dp-size 2: --pp-size of several"),
                                ([*DEPLOYMENT, "--router-policy", "random"], "--router-policy: needs replicas"),
                                ([*DEPLOYMENT, "--pd-disaggregation", "--dp-size", "2"],
                                 "--pd-disaggregation: --dp-size is not simulated with it; say --prefill N")):
            with self.assertRaises(RuntimeError) as refused:
                self.serve(deployment=flags)
            self.assertIn(sentence, str(refused.exception))

    def test_the_end_answers_what_has_begun(self):
        server = self.serve_fleet("round_robin")
        answers = []
        clients = [threading.Thread(target=lambda: answers.append(server.ask("POST", "/generate", generate(3000))[0]))
                   for _ in range(6)]
        for client in clients:
            client.start()
        while sum(self.shares(server)) < 6:
            pass
        server.signal()
        for client in clients:
            client.join()
        self.assertEqual(answers, [200] * 6)
        self.assertEqual(server.wait(), 0)


if __name__ == "__main__":
    ServerTest.program = sys.argv[1]
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]])
