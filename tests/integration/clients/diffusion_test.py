#!/usr/bin/env python3
"""SGLang's serving benchmark of diffusion pipelines, and the OpenAI Python SDK, against `tpsim serve` of a pipeline.

Usage: diffusion_test.py TPSIM CLIENTS [TEST …]
"""

import json
import os
import subprocess

import client_tests
from client_tests import ClientTest


class Diffusion(ClientTest):
    def media(self, model, what, *flags):
        server = self.serve("--speedup", "20", *flags, deployment=["--model-path", model, "--hardware", "h100-sxm"])
        return json.loads(self.client("openai_media_client.py", f"http://127.0.0.1:{server.port}/v1", what))

    def test_the_sdk_makes_images(self):
        seen = self.media("flux.1-dev", "images")
        self.assertEqual(seen["sizes"], [[512, 512]] * 2)
        self.assertRegex(seen["url"], "^/v1/images/.*/content$")
        self.assertIn("WIDTHxHEIGHT", json.dumps(seen["refused"]))

    def test_the_sdk_edits_images(self):
        self.assertEqual(self.media("qwen-image-edit", "edits")["sizes"], [[640, 480]])

    def test_the_sdk_makes_videos(self):
        seen = self.media("wan2.1-i2v-14b-480p", "videos")
        self.assertEqual(seen["created"], "queued")
        self.assertIn("in_progress", seen["states"])
        job = seen["job"]
        # Of the input's shape, on the area that was asked for; the frames of a second and one more.
        width, height = map(int, job["size"].split("x"))
        self.assertAlmostEqual(height / width, 2, delta=0.1)
        self.assertEqual((job["progress"], job["seconds"]), (100, "1"))
        self.assertEqual(seen["listed"], [job["id"]])
        self.assertGreater(seen["bytes"], 1000)
        self.assertEqual(seen["deleted"]["id"], job["id"])

    def test_the_benchmark_reports_what_run_says(self):
        deployment = ["--model-path", "z-image-turbo", "--hardware", "h100-sxm"]
        load = ["--num-prompts", "12", "--max-concurrency", "3"]
        server = self.serve(deployment=deployment)
        self.client("sglang_diffusion_bench.py", "--port", str(server.port), "--dataset", "random", "--task",
                    "text-to-image", "--width", "512", "--height", "512", "--num-inference-steps", "4", *load,
                    "--output-file", "bench.json")
        with open(self.path("bench.json")) as file:
            reported = json.load(file)
        report = self.path("report")
        subprocess.run([self.program, "run", *deployment, *load, "--width", "512", "--height", "512",
                        "--num-inference-steps", "4", "--report-dir", report, "--quiet"], check=True)
        with open(os.path.join(report, "report.json")) as file:
            said = json.load(file)
        self.assertEqual(reported["completed_requests"], 12)
        milliseconds = {"mean": 1e3 * said["latency"]["mean"], "p99": 1e3 * said["latency"]["p99"]}
        seen = {"mean": 1e3 * reported["latency_mean"], "p99": 1e3 * reported["latency_p99"]}
        self.assertEqual(self.far_off(seen, milliseconds, ["mean", "p99"]), [])
        self.assertAlmostEqual(reported["peak_memory_mb_max"], said["peak_bytes"] / 2**20, delta=1)


if __name__ == "__main__":
    client_tests.main()
