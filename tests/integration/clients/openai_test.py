#!/usr/bin/env python3
"""The OpenAI Python SDK against `tpsim serve`.

Usage: openai_test.py TPSIM CLIENTS [TEST …]
"""

import json
import time

import client_tests
from client_tests import ClientTest


class OpenAI(ClientTest):
    def test_the_sdk_finds_what_it_expects(self):
        deployment = ["--model-path", self.model_folder(chat="headers"), "--hardware", "h200-sxm"]
        server = self.serve("--api-key", "secret", "--served-model-name", "llama", "--speedup", "5",
                            deployment=deployment)
        got = json.loads(self.client("openai_client.py", f"http://127.0.0.1:{server.port}/v1", "secret", "llama"))
        self.assertEqual(got["models"], ["llama"])
        self.assertEqual(got["model"], "llama")

        answer = got["chat"]
        self.assertEqual(answer["object"], "chat.completion")
        self.assertEqual(answer["choices"][0]["message"]["role"], "assistant")
        self.assertTrue(answer["choices"][0]["message"]["content"].strip())
        usage = answer["usage"]
        self.assertEqual(usage["completion_tokens"], 17)
        self.assertEqual(usage["total_tokens"], usage["prompt_tokens"] + 17)
        self.assertEqual(got["chat_limit"]["usage"]["completion_tokens"], 9)
        self.assertEqual([choice["index"] for choice in got["chat_n"]["choices"]], [0, 1, 2])

        stream = got["chat_stream"]
        self.assertEqual(stream["roles"], ["assistant"])
        self.assertEqual(len(stream["finish"]), 1)
        self.assertEqual(stream["usage"]["completion_tokens"], 17)
        self.assertEqual(stream["usage"]["prompt_tokens"], usage["prompt_tokens"])
        self.assertGreaterEqual(stream["chunks"], 17)
        self.assertIsNone(got["chat_stream_plain"]["usage"])

        self.assertEqual(got["completion"]["object"], "text_completion")
        self.assertEqual(got["completion"]["usage"]["completion_tokens"], 12)
        self.assertEqual(got["completion_ids"]["usage"]["prompt_tokens"], 4)
        self.assertEqual(len(got["completion_batch"]["choices"]), 2)
        self.assertEqual(got["completion_batch"]["usage"]["completion_tokens"], 8)
        self.assertEqual(got["completion_stream"]["usage"]["completion_tokens"], 12)
        self.assertEqual(got["raw"], 200)

        for name, status in (("no_messages", 400), ("too_long", 400), ("hot", 400), ("grammar", 400),
                             ("no_route", 404), ("wrong_key", 401)):
            self.assertIsNotNone(got[name], name)
            self.assertEqual(got[name]["status"], status, f"{name}: {got[name]}")
            self.assertTrue(got[name]["message"], name)

        self.assertEqual(got["many"], list(range(20, 60)))
        self.assertEqual(got["given_up"], 5)
        self.assertLess(got["seconds_after"], 5)
        # Nothing is held for who has left.
        until = time.monotonic() + 10
        while time.monotonic() < until:
            loads = json.loads(server.ask("GET", "/v1/loads", headers={"authorization": "Bearer secret"})[1])["loads"][0]
            if loads["num_total_reqs"] == 0 and loads["num_used_tokens"] == 0:
                return
            time.sleep(0.1)
        self.fail(f"not idle: {loads}")

    def test_prompts_are_the_templates(self):
        """What a chat costs is what its template makes of it, and its words are the tokenizer's."""
        deployment = ["--model-path", self.model_folder(chat="headers"), "--hardware", "h200-sxm"]
        server = self.serve(deployment=deployment)
        self.needs_tokenizer(server)
        messages = [{"role": "system", "content": "  You are terse.\n"}, {"role": "user", "content": "Grüße, 你好"}]
        status, body = server.ask("POST", "/v1/chat/completions", {"model": "m", "messages": messages, "max_tokens": 3})
        self.assertEqual(status, 200, body)
        ids = self.client("template_ids.py", self.path("model"), json.dumps(messages))
        self.assertEqual(json.loads(body)["usage"]["prompt_tokens"], len(json.loads(ids)))


if __name__ == "__main__":
    client_tests.main()
