#!/usr/bin/env python3
"""`tpsim serve` of diffusion pipelines, by raw sockets.

Usage: pipeline_test.py TPSIM [CLASS ...]
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time
import unittest

from server import Server

PROGRAM = ""
WAN = ["--model-path", "wan2.1-t2v-1.3b", "--hardware", "h100-sxm"]
FLUX = ["--model-path", "flux.1-dev", "--hardware", "h100-sxm"]
VIDEO = {"prompt": "a cat", "size": "832x480", "num_frames": 81, "num_inference_steps": 10}


class Pipelines(unittest.TestCase):
    def serve(self, *flags, deployment=WAN):
        server = Server(PROGRAM, *flags, deployment=deployment)
        self.addCleanup(server.stop)
        return server

    def ask(self, server, method, path, body=None, status=200):
        got, text = server.ask(method, path, body)
        self.assertEqual(got, status, text)
        return json.loads(text)

    def wait_for(self, server, job):
        until = time.monotonic() + 30
        while time.monotonic() < until:
            answer = self.ask(server, "GET", f"/v1/videos/{job['id']}")
            if answer["status"] == "completed":
                return answer
            time.sleep(0.02)
        self.fail("the video does not come")

    def test_videos_wait_for_each_other(self):
        server = self.serve("--speedup", "100")
        jobs = [self.ask(server, "POST", "/v1/videos", VIDEO) for _ in range(3)]
        self.assertEqual({job["status"] for job in jobs}, {"queued"})
        page = self.ask(server, "GET", "/v1/videos?limit=2&order=asc")
        self.assertEqual([job["id"] for job in page["data"]], [job["id"] for job in jobs[:2]])
        self.assertTrue(page["has_more"])
        began = time.monotonic()
        done = [self.wait_for(server, job) for job in jobs]
        self.assertGreater(time.monotonic() - began, 1.5 * done[0]["inference_time_s"] / 100)
        for line in server.ask("GET", "/metrics")[1].splitlines():
            if line.startswith("sglang:diffusion_request_latency_seconds_sum"):
                # One, two and three times the seconds of one.
                self.assertAlmostEqual(float(line.split()[-1]) / done[0]["inference_time_s"], 6, delta=0.3)
                break
        else:
            self.fail("no latency among the metrics")
        status, video = server.ask_bytes("GET", f"/v1/videos/{jobs[0]['id']}/content")
        self.assertEqual((status, video[4:8]), (200, b"ftyp"))

    def test_equal_shapes_go_together(self):
        server = self.serve("--speedup", "100", "--batching-max-size", "4", "--batching-delay-ms", "600000")
        jobs = [self.ask(server, "POST", "/v1/videos", VIDEO) for _ in range(4)]
        for job in jobs:
            self.wait_for(server, job)
        text = server.ask("GET", "/metrics")[1]
        self.assertIn('stop_reason="max_size",le="4.0"} 1.0', text)
        self.assertIn('stop_reason="max_size",le="2.0"} 0.0', text)

    def test_wrong_requests(self):
        server = self.serve()
        for body, sentence in [({"prompt": "a", "size": "x"}, "WIDTHxHEIGHT"), ({}, "prompt"), ("{", "JSON"), ("[]", ""),
                               ({**VIDEO, "input_reference": "data:image/png;base64,AA"}, "no input image"),
                               ({**VIDEO, "task_type": "I2V"}, "T2V"), ({**VIDEO, "size": "4x4"}, "must be"),
                               ({**VIDEO, "enable_cache_dit": True}, "enable_cache_dit")]:
            status, text = server.ask("POST", "/v1/videos", body)
            self.assertIn(status, (400, 422), text)
            self.assertIn(sentence, json.loads(text)["detail"])
        self.assertIn("/v1/videos", self.ask(server, "POST", "/v1/images/generations", {"prompt": ""}, 400)["detail"])
        # What does not fit fails as it would there.
        huge = {**VIDEO, "size": "4096x4096", "num_frames": 401}
        self.assertIn("out of memory", self.ask(server, "POST", "/v1/videos", huge, 500)["detail"])
        for method, path, status in [("GET", "/v1/videos/none", 404), ("GET", "/v1/videos/none/content", 404),
                                     ("GET", "/v1/images/none/content", 404), ("PUT", "/v1/videos", 405),
                                     ("POST", "/health", 404), ("GET", "/none", 404), ("GET", "/v1/videos?limit=0", 422),
                                     ("GET", "/v1/videos?order=up", 422), ("GET", "/v1/models/none", 404)]:
            self.assertEqual(server.ask(method, path)[0], status, path)
        self.assertEqual(self.ask(server, "GET", "/v1/videos")["data"], [])

    def test_many_at_once_and_some_who_leave(self):
        server = self.serve("--speedup", "1000", "--dp-size", "2", "--num-gpus", "2", deployment=FLUX)
        answers = []
        body = {"prompt": "x", "size": "256x256", "num_inference_steps": 4}

        def client(leaves):
            try:
                answers.append(server.ask("POST", "/v1/images/generations", body, timeout=0.001 if leaves else 60)[0])
            except OSError:
                pass

        threads = [threading.Thread(target=client, args=(i % 4 == 0,)) for i in range(64)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertGreaterEqual(answers.count(200), 48)
        self.assertEqual(set(answers), {200})

    def test_a_signal_lets_images_end(self):
        server = self.serve("--speedup", "10", deployment=FLUX)
        answers = []
        thread = threading.Thread(target=lambda: answers.append(
            server.ask("POST", "/v1/images/generations", {"prompt": "x", "response_format": "b64_json"})))
        thread.start()
        time.sleep(0.3)
        server.signal(signal.SIGTERM)
        self.assertEqual(server.wait(), 0)
        thread.join()
        self.assertEqual(answers[0][0], 200)

    def test_what_cannot_be_served_is_said_at_once(self):
        for flags, sentence in [(["--hardware", "l40s", "--model-path", "flux.2-dev", "--performance-mode", "speed"],
                                 "--width"), ([*WAN, "--attention-backend", "none"], "--attention-backend"),
                                ([*WAN, "--speedup", "0"], "--speedup")]:
            done = subprocess.run([PROGRAM, "serve", *flags], capture_output=True, text=True)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn(sentence, done.stderr)


if __name__ == "__main__":
    PROGRAM = os.path.abspath(sys.argv[1])
    unittest.main(argv=sys.argv[:1] + sys.argv[2:], verbosity=2)
