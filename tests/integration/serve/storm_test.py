#!/usr/bin/env python3
"""Clients of every kind at once on one `tpsim serve`: whoever behaves gets every token, and nothing is left of the others.

Usage: storm_test.py TPSIM [CLASS ...]; TPSIM_STORM_SECONDS says how long each storm lasts (6).
"""

import json
import os
import random
import socket
import sys
import tempfile
import threading
import time
import unittest

from server import ServerTest, connect, events, generate, long_context, read_all, request

HERE = os.path.dirname(os.path.abspath(__file__))
TESTS = os.path.dirname(os.path.dirname(HERE))
CORPUS = os.path.join(TESTS, "fuzz", "corpus")
SECONDS = float(os.environ.get("TPSIM_STORM_SECONDS", "6"))


def seeds():
    """Bytes that are nearly requests: the fuzzers' examples."""
    found = []
    for folder in sorted(os.listdir(CORPUS)):
        if folder.startswith("serve_"):
            for name in sorted(os.listdir(os.path.join(CORPUS, folder))):
                with open(os.path.join(CORPUS, folder, name), "rb") as file:
                    found.append(file.read()[1:])
    return found


class Storm(ServerTest):
    """What each client does until the storm is over; what goes wrong is one of self.wrong."""

    prompts = 1000  # ids are below
    longest = 120  # tokens of an answer
    endless = 10000  # of one that nobody waits for

    def setUp(self):
        self.over = threading.Event()
        self.wrong = []
        self.counts = {}
        self.lock = threading.Lock()

    def count(self, what):
        with self.lock:
            self.counts[what] = self.counts.get(what, 0) + 1

    def weather(self, server, clients):
        """Runs `clients`, functions of a server and a random.Random, over and over in a thread each."""

        def again_and_again(client, seed):
            own = random.Random(seed)
            while not self.over.is_set():
                try:
                    client(server, own)
                    self.count(client.__name__)
                except Exception as error:  # noqa: BLE001  # whatever it is, it is a failure
                    self.wrong.append(f"{client.__name__}: {error!r}")
                    return

        threads = [threading.Thread(target=again_and_again, args=(client, seed)) for seed, client in enumerate(clients)]
        for thread in threads:
            thread.start()
        time.sleep(SECONDS)
        self.over.set()
        for thread in threads:
            thread.join(120)
            self.assertFalse(thread.is_alive(), "a client hangs")
        self.assertEqual(self.wrong, [])
        print(", ".join(f"{count} {what}" for what, count in sorted(self.counts.items())))

    def settled(self, server):
        """Nothing runs, nothing is held, and whatever was accepted has ended in one way."""
        server.wait_until_idle(60)
        until = time.monotonic() + 20
        while True:
            now = json.loads(server.ask("GET", "/live/data")[1])
            left = {"streams": now["open_streams"], "connections": now["open_connections"] - 1, "KV": now["kv_used"],
                    "requests": now["accepted"] - now["finished"] - now["rejected"] - now["aborted"]}
            if not any(left.values()):
                break
            self.assertLess(time.monotonic(), until, f"left over: {left}")
            time.sleep(0.05)
        self.assertGreater(now["finished"], 0)
        self.assertGreater(now["aborted"], 0)
        print({kind: now[kind] for kind in ("accepted", "finished", "rejected", "aborted", "invalid", "merged_deltas")})

    def body(self, own, **more):
        prompt = [own.randrange(1, self.prompts) for _ in range(own.randrange(1, 40))]
        return generate(own.randrange(1, self.longest), prompt=prompt, **more)

    # The clients.

    def streams(self, server, own):
        body = self.body(own, stream=True)
        with connect(server) as client:
            client.sendall(request(body))
            found = events(read_all(client))
        last = json.loads(found[-2])
        self.assertEqual(found[-1], b"[DONE]")
        self.assertEqual(last["meta_info"]["completion_tokens"], body["sampling_params"]["max_new_tokens"])
        self.assertEqual(len(last["output_ids"]), last["meta_info"]["completion_tokens"])

    def chats(self, server, own):
        body = {"model": "m", "messages": [{"role": "user", "content": "x" * own.randrange(1, 500)}],
                "max_tokens": own.randrange(1, 50), "stream": True, "ignore_eos": True, "n": own.choice((1, 1, 3)),
                "stream_options": {"include_usage": True}}
        with connect(server) as client:
            client.sendall(request(body, path="/v1/chat/completions"))
            found = events(read_all(client))
        self.assertEqual(json.loads(found[-2])["usage"]["completion_tokens"], body["max_tokens"] * body["n"])

    def batches(self, server, own):
        bodies = [self.body(own) for _ in range(4)]
        batch = {"input_ids": [body["input_ids"] for body in bodies],
                 "sampling_params": [body["sampling_params"] for body in bodies]}
        status, text = server.ask("POST", "/generate", batch)
        self.assertEqual(status, 200, text)
        self.assertEqual([answer["meta_info"]["completion_tokens"] for answer in json.loads(text)],
                         [body["sampling_params"]["max_new_tokens"] for body in bodies])

    def vanishes(self, server, own):
        client = connect(server)
        stream = own.random() < 0.7
        bytes_ = request(generate(self.endless, prompt=range(1, own.randrange(2, 50)), stream=stream))
        if own.random() < 0.3:
            bytes_ = request({"model": "m", "prompt": "x" * own.randrange(1, 2000), "max_tokens": self.endless,
                              "ignore_eos": True, "stream": stream}, path="/v1/completions")
        client.sendall(bytes_[:own.randrange(len(bytes_))] if own.random() < 0.2 else bytes_)
        time.sleep(own.random() * 0.1)
        way = own.randrange(3)
        if way == 0:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
        elif way == 1:
            client.shutdown(socket.SHUT_WR)
            self.assertNotIn(b"[DONE]", read_all(client))
        client.close()

    def aborts(self, server, own):
        name = f"r{own.random()}"
        with connect(server) as client:
            client.sendall(request(generate(self.endless, prompt=range(1, 9), stream=True, rid=name)))
            begun = b""
            while b"data: " not in begun:
                begun += client.recv(1 << 16)
            time.sleep(own.random() * 0.05)
            self.assertEqual(server.ask("POST", "/abort_request", {"rid": name})[0], 200)
            found = events(begun + read_all(client))
        self.assertEqual(json.loads(found[-2])["meta_info"]["finish_reason"]["type"], "abort")

    def reads_slowly(self, server, own):
        client = connect(server, receive_buffer=4096)
        client.sendall(request(generate(400, prompt=(1, 2, own.randrange(1, 99)), stream=True)))
        data = b""
        while not data.endswith(b"0\r\n\r\n"):
            data += client.recv(512 if len(data) < 20000 else 1 << 16)
            if len(data) < 20000:
                time.sleep(0.01)
        client.close()
        self.assertEqual(len(json.loads(events(data)[-2])["output_ids"]), 400)

    def asks_too_much(self, server, own):
        long = server.info()["max_req_input_len"] + own.randrange(10, 20)
        status, text = server.ask("POST", "/generate", generate(5, prompt=[1] * long))
        self.assertEqual(status, 400, text)

    def looks(self, server, own):
        path = own.choice(("/metrics", "/live", "/live/data?after=1", "/v1/loads", "/get_server_info", "/health", "/",
                           "/health_generate", "/v1/models", "/get_model_info", "/nowhere"))
        self.assertEqual(server.ask("GET", path)[0], 404 if path == "/nowhere" else 200, path)

    def flushes(self, server, own):
        self.assertIn(server.ask("POST", "/flush_cache")[0], (200, 400))
        time.sleep(own.random() * 0.05)

    def talks_nonsense(self, server, own):
        text = bytearray(own.choice(self.nonsense))
        for _ in range(own.randrange(4) if text else 0):
            text[own.randrange(len(text))] = own.randrange(256)
        with connect(server) as client:
            try:
                if own.random() < 0.5:
                    client.sendall(text * own.randrange(1, 20))
                else:
                    client.sendall(b"POST /generate HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
                                   b"content-length: %d\r\n\r\n" % len(text) + text)
                client.shutdown(socket.SHUT_WR)
                while client.recv(1 << 16):
                    pass
            except ConnectionError:
                pass

    def storm(self, server, *more):
        self.nonsense = seeds()
        everybody = [self.streams] * 6 + [self.chats, self.batches, self.vanishes, self.vanishes, self.vanishes, self.aborts,
                                          self.reads_slowly, self.asks_too_much, self.looks, self.looks, self.flushes,
                                          self.talks_nonsense, self.talks_nonsense, *more]
        self.weather(server, everybody)
        self.settled(server)
        # And a signal while some are in the middle of it.
        last = [self.connect(server) for _ in range(8)]
        for client in last:
            client.sendall(request(generate(self.longest, stream=True)))
        for client in last:
            client.recv(10)
        server.signal()
        for client in last:
            self.assertTrue(read_all(client).endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n"))
        self.assertEqual(server.wait(60), 0)


class Modeled(Storm):
    def test_everybody_at_once(self):
        self.storm(self.serve("--wire-threads", "3", "--speedup", "3"))


class SmallPool(Storm):
    """Where requests wait, are retracted, and leave while they do."""

    endless = 3000

    def test_everybody_at_once(self):
        self.storm(self.serve("--wire-threads", "2", "--speedup", "3", "--max-total-tokens", "6000",
                              "--max-running-requests", "6", "--chunked-prefill-size", "64"))


class Numeric(Storm):
    """The model's own tokens: those of a client alone, whatever happens around it."""

    prompts = 131
    longest = 40

    def alone(self, server, prompt):
        body = generate(self.longest, prompt=prompt)
        body["sampling_params"]["temperature"] = 0
        status, text = server.ask("POST", "/generate", body)
        self.assertEqual(status, 200, text)
        return json.loads(text)["output_ids"]

    def test_everybody_at_once(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        long_context(folder.name)
        server = self.serve("--executor", "numeric", "--max-total-tokens", "20000", "--wire-threads", "2",
                            deployment=["--model-path", folder.name])
        known = {prompt: self.alone(server, prompt) for prompt in ((1, 2, 3), (5, 6, 7, 8, 9), (100,), tuple(range(3, 90)))}

        def computes(server, own):
            prompt = own.choice(list(known))
            self.assertEqual(self.alone(server, prompt), known[prompt])

        self.storm(server, computes, computes)


if __name__ == "__main__":
    Storm.program = os.path.abspath(sys.argv[1])
    del ServerTest
    unittest.main(argv=[sys.argv[0], *(sys.argv[2:] or ["Modeled", "SmallPool", "Numeric"])], verbosity=2)
