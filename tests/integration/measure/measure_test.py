#!/usr/bin/env python3
"""launch/lab/measure against a server that stands in for SGLang's: what it writes, how it goes on, what it leaves running.

Usage: measure_test.py TPSIM [CLASS ...]
"""

import base64
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import zipfile

HERE = os.path.dirname(os.path.abspath(__file__))
MEASURE = os.path.join(HERE, "../../../launch/lab/measure")
FAKE = f"{sys.executable} {os.path.join(HERE, 'fake_sglang.py')}"
CONFIG = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "hidden_size": 4096,
          "num_key_value_heads": 8, "num_attention_heads": 32, "num_hidden_layers": 32, "intermediate_size": 14336,
          "vocab_size": 128256, "max_position_embeddings": 131072, "rms_norm_eps": 1e-5, "rope_theta": 500000.0,
          "tie_word_embeddings": False, "torch_dtype": "bfloat16"}
tpsim = None
port = 12000 + os.getpid() % 20000  # below those that the kernel gives to clients, who leave them taken for a minute


def is_running(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


class Scratch(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="tpsim-measure-")
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.out = os.path.join(self.folder, "out")

    def start(self, *words, **environment):
        return subprocess.Popen([sys.executable, os.path.join(MEASURE, "measure.py"), *words], cwd=self.folder,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                env={**os.environ, "CUDA_VISIBLE_DEVICES": "", **environment})

    def measure(self, *words, **environment):
        with self.start(*words, **environment) as child:
            out, err = child.communicate(timeout=100)
        return child.returncode, out, err


class Kit(Scratch):
    def setUp(self):
        super().setUp()
        global port
        port += 8
        self.model = os.path.join(self.folder, "my-llama")
        os.makedirs(self.model)
        with open(os.path.join(self.model, "config.json"), "w") as file:
            json.dump(CONFIG, file)
        self.common = ["--gpus", "0,1", "--hardware", "h200-sxm", "--port", str(port), "--output", self.out,
                       "--server-command", FAKE]

    def words(self, *loads, name="one", flags=()):
        return ["--model-path", self.model, "--name", name, "--loads", *loads, *self.common, "--", *flags]

    def requests(self, name="one"):
        with open(os.path.join(self.out, name + ".jsonl")) as file:
            return [json.loads(line) for line in file]

    def tpsim(self, *words):
        return subprocess.run([tpsim, *words], cwd=self.folder, capture_output=True, text=True, timeout=100)

    def test_what_it_writes_tpsim_reads(self):
        names = ["closed:256:32:4:12", "closed:1024:48:1:3", "burst:128:16:12", "random:512:32:20:24",
                 "closed:512:64:8:24", "closed:2048:24:2:8"]
        status, out, err = self.measure(*self.words(*names, flags=["--attention-backend", "fa3"]))
        self.assertEqual((status, err), (0, ""), out)
        rows = self.requests()
        self.assertEqual([load for i, load in enumerate(row["load"] for row in rows)
                          if i == 0 or rows[i - 1]["load"] != load], names)
        for row in rows:
            self.assertNotIn("error", row)
            self.assertLess(0, row["first"] - row["sent"])
            self.assertLess(row["first"], row["last"])
        closed = [row for row in rows if row["load"] == "closed:256:32:4:12"]
        self.assertEqual([(row["i"], row["isl"], row["osl"]) for row in closed], [(i, 256, 32) for i in range(12)])
        self.assertEqual(sorted(os.listdir(os.path.join(self.out, "models"))), ["my-llama"])
        with open(os.path.join(self.out, "one.info.json")) as file:
            self.assertEqual(json.load(file)["hardware"], "h200-sxm")

        file = os.path.join(self.out, "one.jsonl")
        done = self.tpsim("validate", "--measurements", file, "--report-dir", "report")
        self.assertEqual(done.returncode, 0, done.stderr)
        with open(os.path.join(self.folder, "report", "validation.json")) as stream:
            validation = json.load(stream)
        self.assertEqual(validation["not_asked"], [])
        self.assertEqual([row["load"] for row in validation["rows"]], names)
        for row in validation["rows"]:
            self.assertGreater(row["tpot_ms"]["measured"], 3.9)  # what the stand-in sleeps
        steps = next(s for s in validation["steps"] if (s["server"], s["mode"]) == ("all", "decode"))
        self.assertGreater(steps["steps"], 200)

        done = self.tpsim("calibrate", "--from", file, "--hardware", "h200-sxm", "--output", "mine.json")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("decode step", done.stdout)
        done = self.tpsim("run", "--model-path", self.model, "--hardware", "mine.json", "--dataset-name", "random",
                          "--num-prompts", "4", "--random-input-len", "64", "--random-output-len", "8")
        self.assertEqual(done.returncode, 0, done.stderr)
        # The log alone is a measurement, too.
        done = self.tpsim("validate", "--measurements", self.raw_log(), "--report-dir", "log-report")
        self.assertEqual(done.returncode, 0, done.stderr)

    def raw_log(self):
        """The log as a server prints it, which begins with its arguments."""
        path = os.path.join(self.folder, "server.log")
        with open(os.path.join(self.out, "one.log")) as log, open(path, "w") as out:
            out.write("some warning\n[2026-05-11 07:21:33] server_args=ServerArgs(model_path='llama-3.1-8b', tp_size=1, "
                      "attention_backend='fa3', chunked_prefill_size=8192, cuda_graph_bs=[1, 2], served_model_name='a, b)', "
                      "quantization=None, decode_log_interval=1, disable_radix_cache=False)\n")
            out.write(log.read())
        return path

    def test_goes_on_where_it_ended(self):
        first = "closed:64:8:2:4"
        status, out, _ = self.measure(*self.words(first))
        self.assertEqual(status, 0, out)
        before = self.requests()
        status, out, _ = self.measure(*self.words(first))
        self.assertEqual(status, 0, out)
        self.assertIn("all loads are measured", out)
        self.assertEqual(self.requests(), before)
        status, out, _ = self.measure(*self.words(first, "burst:64:4:3", first))
        self.assertEqual(status, 0, out)
        self.assertEqual([row["load"] for row in self.requests()], [first] * 4 + ["burst:64:4:3"] * 3 + [first] * 4)
        status, _, err = self.measure(*self.words(first, flags=["--attention-backend", "triton"]))
        self.assertEqual(status, 2)
        self.assertIn("other flags", err)

    def test_servers_side_by_side(self):
        plan = os.path.join(self.folder, "plan.json")
        with open(plan, "w") as file:
            json.dump({"loads": ["closed:64:16:2:8"],
                       "servers": [{"model_path": self.model, "name": f"s{i}", "tp": tp}
                                   for i, tp in enumerate((1, 1, 2))]}, file)
        status, out, err = self.measure("--plan", plan, *self.common)
        self.assertEqual((status, err), (0, ""), out)
        used = []
        for i in range(3):
            self.assertEqual(len(self.requests(f"s{i}")), 8)
            with open(os.path.join(self.out, f"s{i}.log")) as log:
                used.append(re.search(r"GPUs (\S+)", log.read()).group(1))
        self.assertEqual(sorted(used[:2]), ["0", "1"])
        self.assertEqual(sorted(used[2]), [",", "0", "1"])

    def test_ends_its_servers(self):
        child_file = os.path.join(self.folder, "child")
        wishes = json.dumps({"child": child_file})
        for how in (signal.SIGINT, signal.SIGTERM, None):
            with self.subTest(how=how):
                deadline = [] if how else ["--deadline", "4"]
                words = self.words("closed:64:8:2:4", "closed:64:1000:1:100", name=f"s{how}")
                with self.start(*deadline, *words, FAKE_SGLANG=wishes) as child:
                    if how:
                        log = os.path.join(self.out, f"s{how}.jsonl")
                        while not os.path.exists(log):
                            time.sleep(0.05)
                            self.assertIsNone(child.poll())
                        time.sleep(0.3)
                        child.send_signal(how)
                    out, err = child.communicate(timeout=60)
                self.assertEqual((child.returncode, err), (3, ""), out)
                self.assertEqual(len(self.requests(f"s{how}")), 4)  # of the load that was finished
                with open(child_file) as file:
                    pid = int(file.read())
                self.assertFalse(is_running(pid), out)

    def test_servers_that_fail(self):
        status, out, err = self.measure(*self.words("closed:64:8:2:4"), FAKE_SGLANG=json.dumps({"fail": "CUDA out of memory"}))
        self.assertEqual((status, err), (3, ""))
        self.assertIn("the server ended with status 1", out)
        self.assertIn("CUDA out of memory", out)
        status, out, _ = self.measure("--start-timeout", "1", *self.words("closed:64:8:2:4"),
                                      FAKE_SGLANG=json.dumps({"start_seconds": 60}))
        self.assertEqual(status, 3)
        self.assertIn("not up when the time was over", out)

    def test_refusals(self):
        plan = os.path.join(self.folder, "plan.json")
        with open(plan, "w") as file:
            file.write('{"servers": [{"model_path": "x", "tip": 1}]}')
        good = "closed:64:8:2:4"
        for words, parts in (
                (["--loads", good, *self.common], ["--model-path", "required"]),
                (["--model-path", self.model, "--loads", good], ["--output", "required"]),
                (self.words("closed:64:8:2"), ["closed:64:8:2", "closed:INPUT"]),
                (self.words("open:64"), ["open:64", "closed"]),
                (self.words("azure:0:1:1"), ["azure_2023_conv.csv", "--traces"]),
                (self.words(), ["no loads"]),
                (self.words(good, name="a/b"), ["a/b"]),
                (self.words(good, flags=["--port", "1"]), ["--port"]),
                (["--model-path", "./nowhere", "--loads", good, *self.common], ["nowhere", "config.json"]),
                (["--tp", "3", *self.words(good)], ["--tp 3", "2"]),
                (["--plan", plan, *self.common], ["servers[0]", "tip"]),
                (["--plan", "nowhere.json", *self.common], ["nowhere.json"]),
                (["--model-path", self.model, "--loads", good, "--output", self.out, "--gpus", "0"],
                 ["sglang is not installed"]),
                (["--pack", "a", "--unpack", "b"], ["--pack"]),
                (["--unpack", "nowhere", "--to", "x"], ["nowhere", "parts.json"])):
            with self.subTest(words=words):
                status, out, err = self.measure(*words)
                self.assertEqual((status, out), (2, ""))
                self.assertRegex(err, r"\Ameasure.py: [^\n]+\n\Z")
                for part in parts:
                    self.assertIn(part, err)

    def test_help(self):
        status, out, _ = self.measure("--help")
        self.assertEqual(status, 0)
        for flag in ("--model-path", "--loads", "--plan", "--deadline", "--pack", "--unpack", "--packages"):
            self.assertIn(flag, out)


class Packing(Scratch):
    def wheel(self, folder):
        path = os.path.join(folder, "sglang-0.5.12-py3-none-any.whl")
        files = {"sglang/__init__.py": b"VERSION = '0.5.12'\n" + b"#" * 5000,
                 "sglang-0.5.12.dist-info/METADATA": b"Metadata-Version: 2.1\nName: sglang\nVersion: 0.5.12\n",
                 "sglang-0.5.12.dist-info/WHEEL": b"Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n"}
        record = "".join(f"{name},sha256={base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip('=')},{len(data)}\n"
                         for name, data in files.items()) + "sglang-0.5.12.dist-info/RECORD,,\n"
        with zipfile.ZipFile(path, "w") as out:
            for name, data in files.items():
                out.writestr(name, data)
            out.writestr("sglang-0.5.12.dist-info/RECORD", record)
        return path

    def test_parts_come_back(self):
        """What --pack downloads is pip's affair; how it is cut and put together again is ours."""
        import tarfile
        sys.path.insert(0, MEASURE)
        import packing
        parts = os.path.join(self.folder, "parts")
        os.makedirs(parts)
        whole = os.path.join(self.folder, "wheels.tar")
        with tarfile.open(whole, "w") as tar:
            tar.add(self.wheel(self.folder), "sglang-0.5.12-py3-none-any.whl")
        listed = packing.cut(whole, parts, 1000)
        self.assertGreater(len(listed), 5)
        with open(os.path.join(parts, packing.INDEX), "w") as file:
            json.dump({"sglang": "0.5.12", "python": sys.version.split()[0], "parts": listed}, file)
        to = os.path.join(self.folder, "packages")
        status, out, err = self.measure("--unpack", parts, "--to", to)
        self.assertEqual((status, err), (0, ""), out)
        with open(os.path.join(to, "sglang", "__init__.py")) as file:
            self.assertIn("0.5.12", file.read())
        with open(os.path.join(parts, "part-003"), "r+b") as file:
            file.write(b"damage")
        status, _, err = self.measure("--unpack", parts, "--to", to)
        self.assertEqual(status, 2)
        self.assertIn("part-003 is damaged", err)
        os.remove(os.path.join(parts, "part-004"))
        status, _, err = self.measure("--unpack", parts, "--to", to)
        self.assertEqual(status, 2)
        self.assertIn("part-00", err)

    def test_what_is_present_is_left_out(self):
        sys.path.insert(0, MEASURE)
        import packing
        present = packing.PRESENT.split(",")
        for name in ("torch", "nvidia-cublas-cu12", "nvidia_cudnn_cu12", "Triton", "numpy"):
            self.assertTrue(packing.is_present(name, present), name)
        for name in ("sglang", "torchao", "sgl-kernel", "triton-kernels"):
            self.assertFalse(packing.is_present(name, present), name)


if __name__ == "__main__":
    tpsim = os.path.abspath(sys.argv.pop(1))
    unittest.main()
