#!/usr/bin/env python3
"""`tpsim serve` and clients of every kind, by raw sockets.

Usage: serve_test.py TPSIM [CLASS ...]
"""

import json
import signal
import socket
import sys
import threading
import time
import unittest

from server import ServerTest, connect, events, generate, read_all, request


class Answers(ServerTest):
    def test_a_tour(self):
        server = self.serve()
        self.assertEqual(server.ask("GET", "/health")[0], 200)
        self.assertEqual(server.ask("GET", "/health_generate")[0], 200)
        status, body = server.ask("POST", "/generate", generate(5))
        self.assertEqual(status, 200)
        self.assertEqual(json.loads(body)["meta_info"]["completion_tokens"], 5)
        status, body = server.ask("POST", "/v1/chat/completions",
                                  {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 5})
        self.assertEqual(status, 200)
        self.assertEqual(json.loads(body)["usage"]["completion_tokens"], 5)
        info = server.info()
        self.assertEqual(info["model_path"], "llama-3.1-8b")
        self.assertGreater(info["max_total_num_tokens"], 100000)
        self.assertFalse(info["tpsim"]["real_tokenizer"])
        self.assertEqual(json.loads(server.ask("GET", "/v1/models")[1])["data"][0]["id"], "llama-3.1-8b")
        server.signal()
        self.assertEqual(server.wait(), 0)

    def test_several_processes(self):
        server = self.serve("--tp", "2")
        self.assertEqual(json.loads(server.ask("POST", "/generate", generate(3))[1])["meta_info"]["completion_tokens"], 3)

    def test_data_parallel_attention(self):
        server = self.serve(deployment=["--model-path", "deepseek-v2-lite", "--hardware", "h200-sxm", "--tp", "2",
                                        "--dp-size", "2", "--enable-dp-attention"])
        self.assertEqual(json.loads(server.ask("POST", "/generate", generate(3))[1])["meta_info"]["completion_tokens"], 3)
        self.assertEqual(len(server.info()["internal_states"]), 2)

    def test_refusals_of_the_command_line(self):
        with self.assertRaisesRegex(RuntimeError, "--host"):
            self.serve("--host", "nowhere.example")
        taken = socket.socket()
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        self.addCleanup(taken.close)
        with self.assertRaisesRegex(RuntimeError, "--port"):
            self.serve("--port", str(taken.getsockname()[1]), deployment=["--model-path", "llama-3.1-8b", "--hardware",
                                                                          "h200-sxm"][:4])


class Limits(ServerTest):
    def test_a_hundred_megabytes_are_refused_early(self):
        server = self.serve()
        client = self.connect(server)
        client.sendall(b"POST /generate HTTP/1.1\r\nhost: x\r\ncontent-length: 100000000\r\n\r\n")
        self.assertIn(b" 413 ", client.recv(4096))  # of the body, not a byte was sent
        client.close()
        before = server.resident()
        client = self.connect(server)
        client.sendall(b"POST /generate HTTP/1.1\r\nhost: x\r\ncontent-length: 100000000\r\n\r\n")
        piece = b"x" * (1 << 20)
        try:
            for _ in range(95):
                client.sendall(piece)
        except OSError:
            pass  # closed on
        self.assertLess(server.resident() - before, 20 << 20)
        client.close()
        self.assertEqual(server.ask("GET", "/health")[0], 200)

    def test_a_hundred_megabytes_that_are_allowed_hold_up_nobody(self):
        server = self.serve("--max-body-bytes", "200000000", "--wire-threads", "1")
        times = []
        ended = threading.Event()

        def stream():
            with connect(server) as client:
                client.sendall(request(generate(100000, stream=True)))
                while not ended.is_set() and client.recv(1 << 16):
                    times.append(time.monotonic())

        beside = threading.Thread(target=stream)
        beside.start()
        client = self.connect(server)
        client.sendall(request({"text": "word" * 25_000_000}))
        sent = time.monotonic()
        answer = client.recv(1 << 16)
        answered = time.monotonic()
        ended.set()
        beside.join()
        self.assertIn(b" 400 ", answer)
        self.assertIn(b"context length", answer)
        # While the body was read the stream went on as before it came.
        self.assertGreater(answered - sent, 0.1)
        tokens = sum(sent < moment < answered for moment in times)
        gaps = sorted(b - a for a, b in zip(times, times[1:]))
        self.assertGreater(tokens, (answered - sent) / gaps[len(gaps) // 2] / 4)

    def test_connections_beyond_the_limit_hear_so(self):
        server = self.serve("--max-connections", "50")
        clients = [self.connect(server) for _ in range(50)]
        more = self.connect(server)
        self.assertIn(b" 503 ", more.recv(4096))
        more.close()
        for client in clients:
            client.close()

    def test_open_requests_beyond_the_limit_hear_so(self):
        server = self.serve("--max-open-requests", "2")
        clients = [self.connect(server) for _ in range(2)]
        for client in clients:
            client.sendall(request(generate(2000, stream=True)))
        for client in clients:
            while b"data: " not in client.recv(1 << 16):  # the head is out before the replica knows of it
                pass
        status, body = server.ask("POST", "/generate", generate(1))
        self.assertEqual(status, 503)
        self.assertIn("--max-open-requests", body)
        for client in clients:
            client.close()
        server.wait_until_idle()
        self.assertEqual(server.ask("POST", "/generate", generate(1))[0], 200)


class Vanishing(ServerTest):
    def test_kv_is_freed_however_a_client_goes(self):
        server = self.serve()

        def closes(client):
            client.close()

        def resets(client):
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
            client.close()

        def closes_half(client):
            client.shutdown(socket.SHUT_WR)
            self.assertNotIn(b"[DONE]", read_all(client))
            client.close()

        for leave in (closes, resets, closes_half):
            for stream in (False, True):
                clients = [self.connect(server) for _ in range(20)]
                for number, client in enumerate(clients):
                    client.sendall(request(generate(4000, prompt=range(10 * number + 1, 10 * number + 500), stream=stream)))
                server.wait_for_requests(len(clients))
                for client in clients:
                    leave(client)
                server.wait_until_idle()

    def test_nobody_else_suffers(self):
        server = self.serve()
        kept = self.connect(server)
        kept.sendall(request(generate(300, stream=True)))
        for _ in range(50):
            client = self.connect(server)
            client.sendall(request(generate(4000, stream=True)))
            client.close()
        self.assertEqual(len(events(read_all(kept))), 301)
        server.wait_until_idle()

    def test_who_closes_its_half_within_a_request_is_gone(self):
        server = self.serve()
        client = self.connect(server)
        client.sendall(b"POST /generate HTTP/1.1\r\ncontent-length: 100\r\n\r\n{")
        client.shutdown(socket.SHUT_WR)
        client.settimeout(10)  # at once, and not when --receive-timeout is over
        self.assertEqual(read_all(client), b"")
        self.assertEqual(json.loads(server.ask("GET", "/live/data")[1])["open_connections"], 1)

    def test_half_a_request_holds_nothing(self):
        server = self.serve("--receive-timeout", "1")
        client = self.connect(server)
        client.sendall(b"POST /generate HTTP/1.1\r\ncontent-length: 100\r\n\r\n{")
        self.assertEqual(read_all(client), b"")
        self.assertEqual(server.ask("GET", "/health")[0], 200)


class Slow(ServerTest):
    def test_a_slow_reader_gets_all_of_it_in_fewer_events(self):
        server = self.serve("--speedup", "20")
        slow = self.connect(server, receive_buffer=4096)
        slow.sendall(request(generate(4000, stream=True)))
        quick = self.connect(server)
        quick.sendall(request(generate(200, prompt=(7, 8), stream=True)))
        self.assertEqual(len(events(read_all(quick))), 201)
        server.wait_until_idle()
        found = events(read_all(slow))
        self.assertLess(len(found), 4001)
        self.assertEqual(len(json.loads(found[-2])["output_ids"]), 4000)


class Memory(ServerTest):
    def test_of_readers_who_do_not_read(self):
        server = self.serve("--speedup", "100")
        server.ask("POST", "/generate", generate(10))
        before = server.resident()
        clients = [self.connect(server, receive_buffer=4096) for _ in range(100)]
        for client in clients:
            client.sendall(request(generate(2000, stream=True)))
        server.wait_until_idle(60)
        self.assertLess(server.resident() - before, 60 << 20)  # 100 answers, not 100 streams of 2,000 events
        for client in clients:
            client.close()


class Drains(ServerTest):
    def test_sigterm_in_mid_stream(self):
        server = self.serve()
        client = self.connect(server)
        client.sendall(request(generate(200, stream=True)))
        client.recv(100)
        idle = self.connect(server)
        time.sleep(0.1)
        server.signal()
        self.assertEqual(idle.recv(100), b"")
        with self.assertRaises(OSError):
            for _ in range(50):
                self.connect(server).close()
                time.sleep(0.02)
        self.assertTrue(read_all(client).endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n"))
        self.assertEqual(server.wait(), 0)

    def test_the_drain_has_its_limit(self):
        server = self.serve("--drain-timeout", "0.5")
        client = self.connect(server)
        client.sendall(request(generate(100000, stream=True)))
        client.recv(100)
        begun = time.monotonic()
        server.signal()
        rest = read_all(client)
        self.assertIn(b"shutting down", rest)
        self.assertTrue(rest.endswith(b"0\r\n\r\n"))
        self.assertEqual(server.wait(), 3)
        self.assertLess(time.monotonic() - begun, 5)

    def test_a_second_signal_ends_at_once(self):
        server = self.serve()
        client = self.connect(server)
        client.sendall(request(generate(100000, stream=True)))
        client.recv(100)
        server.signal()
        time.sleep(1)
        self.assertIsNone(server.process.poll())
        begun = time.monotonic()
        server.signal(signal.SIGINT)
        self.assertEqual(server.wait(), 3)
        self.assertLess(time.monotonic() - begun, 2)

    def test_a_server_without_clients_ends_at_once(self):
        server = self.serve()
        begun = time.monotonic()
        server.signal(signal.SIGINT)
        said = server.process.stderr.read()
        self.assertEqual(server.wait(), 0)
        self.assertLess(time.monotonic() - begun, 1)
        self.assertIn("a signal came: no new calls are taken, 0 that have begun are answered", said)
        self.assertIn("four bytes", said, "where it began")


class Clock(ServerTest):
    def test_speedup(self):
        """The same answer ten times as fast, with the same latency of its own."""
        latencies = []
        for speedup in (1, 10):
            server = self.serve("--speedup", str(speedup))
            server.ask("POST", "/generate", generate(2))
            begun = time.monotonic()
            body = json.loads(server.ask("POST", "/generate", generate(200, prompt=range(5, 900)))[1])
            wall = time.monotonic() - begun
            latencies.append(body["meta_info"]["e2e_latency"])
            self.assertAlmostEqual(wall * speedup, latencies[-1], delta=0.03 * speedup)
        self.assertAlmostEqual(latencies[0], latencies[1], delta=latencies[0] * 0.02)

    def test_tokens_come_when_they_are_due(self):
        """Gaps between the tokens of a single stream are those of the virtual clock."""
        server = self.serve()
        client = self.connect(server)
        client.sendall(request(generate(200, stream=True)))
        times = []
        stream = b""
        while not stream.endswith(b"0\r\n\r\n"):
            stream += client.recv(1 << 16)
            times.append(time.monotonic())
        body = json.loads(events(stream)[-2])
        gaps = sorted(b - a for a, b in zip(times, times[1:]))
        mean = (times[-2] - times[0]) / 199
        self.assertAlmostEqual(gaps[len(gaps) // 2], mean, delta=mean * 0.2)
        self.assertEqual(body["meta_info"]["completion_tokens"], 200)

    def test_clients_in_parallel_are_batched(self):
        server = self.serve()
        done = []

        def one(number):
            begun = time.monotonic()
            server.ask("POST", "/generate", generate(100, prompt=range(number * 7 + 1, number * 7 + 100)))
            done.append(time.monotonic() - begun)

        one(0)
        alone = done.pop()
        threads = [threading.Thread(target=one, args=(number,)) for number in range(1, 33)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertLess(max(done), alone * 3)


if __name__ == "__main__":
    ServerTest.program = sys.argv[1]
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]])
