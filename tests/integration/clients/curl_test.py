#!/usr/bin/env python3
"""`curl` against `tpsim serve`: the lines of its README, and what a person tries next.

Usage: curl_test.py TPSIM [TEST …]
"""

import json
import os
import subprocess
import sys
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "serve"))
from server import Server  # noqa: E402


class Curl(unittest.TestCase):
    program = None

    @classmethod
    def setUpClass(cls):
        cls.server = Server(cls.program, "--served-model-name", "m", "--api-key", "k")
        cls.url = f"http://127.0.0.1:{cls.server.port}"

    @classmethod
    def tearDownClass(cls):
        cls.server.stop()

    def curl(self, path, *words, body=None, key="k"):
        """(status, body)"""
        command = ["curl", "-sS", "--no-buffer", "--max-time", "60", "-w", "\n%{http_code}", self.url + path, *words]
        if key:
            command += ["-H", f"Authorization: Bearer {key}"]
        if body is not None:
            command += ["-H", "content-type: application/json", "-d", json.dumps(body)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=90)
        self.assertEqual(done.returncode, 0, done.stderr)
        text, status = done.stdout.rsplit("\n", 1)
        return int(status), text

    def test_generate(self):
        status, text = self.curl("/generate", body={"text": "Hello", "sampling_params": {"max_new_tokens": 5}})
        self.assertEqual(status, 200, text)
        answer = json.loads(text)
        self.assertEqual(answer["meta_info"]["completion_tokens"], 5)
        self.assertEqual(answer["meta_info"]["prompt_tokens"], 2)
        self.assertTrue(answer["text"].strip())

    def test_a_stream(self):
        status, text = self.curl("/generate", body={"text": "Hello", "stream": True,
                                                    "sampling_params": {"max_new_tokens": 5}})
        self.assertEqual(status, 200, text)
        events = [line[6:] for line in text.splitlines() if line.startswith("data: ")]
        self.assertEqual(events[-1], "[DONE]")
        answers = [json.loads(event) for event in events[:-1]]
        self.assertEqual([answer["meta_info"]["completion_tokens"] for answer in answers], [1, 2, 3, 4, 5])
        for shorter, longer in zip(answers, answers[1:]):
            self.assertTrue(longer["text"].startswith(shorter["text"]))

    def test_a_stream_comes_as_it_is_made(self):
        command = ["curl", "-sSN", self.url + "/v1/chat/completions", "-H", "Authorization: Bearer k", "-H",
                   "content-type: application/json", "-d",
                   json.dumps({"model": "m", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 200,
                               "stream": True})]
        begun = time.monotonic()
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            first = process.stdout.readline()
            came = time.monotonic() - begun
            rest = process.stdout.read()
            ended = time.monotonic() - begun
        self.assertTrue(first.startswith("data: {"), first)
        self.assertTrue(rest.rstrip().endswith("data: [DONE]"), rest[-200:])
        self.assertLess(came, ended / 2)

    def test_chats_completions_and_models(self):
        chat = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 4}
        status, text = self.curl("/v1/chat/completions", body=chat)
        self.assertEqual((status, json.loads(text)["usage"]["completion_tokens"]), (200, 4))
        status, text = self.curl("/v1/completions", body={"model": "m", "prompt": "hi", "max_tokens": 4})
        self.assertEqual((status, json.loads(text)["usage"]["completion_tokens"]), (200, 4))
        status, text = self.curl("/v1/models")
        self.assertEqual((status, json.loads(text)["data"][0]["id"]), (200, "m"))

    def test_every_answer_says_that_its_tokens_are_not_the_models(self):
        words = {"max_tokens": 3, "model": "m"}
        for path, body in (("/generate", {"text": "x", "sampling_params": {"max_new_tokens": 3}}),
                           ("/v1/completions", {"prompt": "x", **words}),
                           ("/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}], **words}),
                           ("/tokenize", {"prompt": "x"})):
            for stream in (False, True)[:1 if path == "/tokenize" else 2]:
                with self.subTest(path, stream=stream):
                    status, text = self.curl(path, "-i", body={**body, "stream": stream})
                    self.assertEqual(status, 200, text)
                    self.assertIn("\nx-tpsim-tokenizer: four bytes a token\n", text)
                    # OpenAI's answers have no room for more.
                    self.assertEqual('"tpsim_tokenizer":"four bytes a token"' in text, path == "/generate", text)

    def test_routes_of_sglangs_that_are_not_simulated(self):
        status, text = self.curl("/v1/embeddings", body={"input": "x"})
        self.assertEqual(status, 404, text)
        self.assertIn("not simulated", json.loads(text)["message"])

    def test_what_a_person_gets_wrong(self):
        for path, words, body, key, status in (
                ("/generate", [], {"text": "x"}, None, 401),
                ("/generate", [], {"text": "x"}, "wrong", 401),
                ("/generate", [], {}, "k", 400),
                ("/generate", ["-d", "{not json"], None, "k", 400),
                ("/generate", [], {"text": 3}, "k", 400),
                ("/nowhere", [], None, "k", 404),
                ("/generate", [], None, "k", 405),
                ("/v1/chat/completions", [], {"model": "m"}, "k", 400),
                ("/v1/chat/completions", [], {"model": "m", "messages": "hi"}, "k", 400),
                ("/v1/completions", [], {"model": "m", "prompt": "x", "max_tokens": "many"}, "k", 400)):
            got, text = self.curl(path, *words, body=body, key=key)
            self.assertEqual(got, status, f"{path} {body}: {text}")
            self.assertTrue(text.strip(), f"{path} {body}: says nothing")

    def test_health_needs_no_key(self):
        self.assertEqual(self.curl("/health", key=None)[0], 200)
        self.assertEqual(self.curl("/health_generate", key=None)[0], 200)

    def test_ways_of_asking(self):
        """Compressed answers are not promised; HTTP/1.0, HEAD, a body announced first, one in chunks, one connection
        for two calls."""
        status, text = self.curl("/v1/models", "--http1.0")
        self.assertEqual(status, 200, text)
        status, text = self.curl("/v1/models", "--compressed")
        self.assertEqual((status, json.loads(text)["object"]), (200, "list"))
        body = {"text": "x " * 4000, "sampling_params": {"max_new_tokens": 2}}
        for words in (["-H", "Expect: 100-continue"], ["-H", "Transfer-Encoding: chunked"]):
            status, text = self.curl("/generate", *words, body=body)
            self.assertEqual((status, json.loads(text)["meta_info"]["completion_tokens"]), (200, 2))
        done = subprocess.run(["curl", "-sS", "-H", "Authorization: Bearer k", self.url + "/v1/models",
                               self.url + "/v1/models", "-w", "%{num_connects}\n", "-o", "/dev/null", "-o", "/dev/null"],
                              capture_output=True, text=True, timeout=60)
        self.assertEqual(done.stdout.split(), ["1", "0"], done.stdout)


if __name__ == "__main__":
    Curl.program = os.path.abspath(sys.argv[1])
    unittest.main(argv=sys.argv[:1] + sys.argv[2:], verbosity=2)
