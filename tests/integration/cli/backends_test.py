#!/usr/bin/env python3
"""SGLang's support matrices seen from outside: what is printed, every cell of them run or refused, the user guide's
launch commands, and `compare --attention-backends all`.

Usage: backends_test.py TPSIM
"""

import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import unittest

TPSIM = None
HERE = os.path.dirname(os.path.abspath(__file__))
SOURCE = os.path.abspath(os.path.join(HERE, "..", "..", ".."))
REFERENCE = os.path.join(SOURCE, "..", "shared", "reference", "002_a8f55f341ad27a72.txt")
LOAD = ["--dataset-name", "random", "--num-prompts", "3", "--random-input-len", "40", "--random-output-len", "8",
        "--max-total-tokens", "16384", "--quiet"]

Y, N = "✅", "❌"
ONE = "⚠️ (page_size=1 only)"
# The facts of ../shared/reference/002…, which wins where documents disagree: by --attention-backend, what the
# matrix calls it and its cells.
MHA_COLUMNS = ["Backend", "Page Size > 1 (native)", "FP8 KV Cache", "FP4 KV Cache", "Spec topk=1", "Spec topk>1",
               "Sliding Window", "MultiModal"]
MHA = {
    "flashinfer": ["FlashInfer", Y, Y, N, Y, Y, Y, N],
    "fa3": ["FA3 (FlashAttention 3)", Y, Y, N, Y, Y, Y, Y],
    "fa4": ["FA4 (FlashAttention 4)", "128", N, Y, N, N, N, Y],
    "triton": ["Triton", N, N, Y, Y, Y, Y, Y],
    "torch_native": ["Torch Native (SDPA)", N, Y, Y, N, N, N, Y],
    "flex_attention": ["FlexAttention (PyTorch)", N, N, Y, N, N, N, N],
    "trtllm_mha": ["TRTLLM MHA", "16, 32 or 64", Y, Y, Y, N, Y, N],
    "dual_chunk_flash_attn": ["Dual Chunk FlashAttention", Y, N, N, N, N, N, N],
    "aiter": ["AITER (ROCm)", Y, Y, N, Y, Y, N, Y],
    "wave": ["Wave (ROCm)", Y, N, N, N, N, N, N],
    "ascend": ["Ascend (NPU)", Y, N, N, N, N, N, Y],
    "intel_xpu": ["Intel XPU", Y, N, N, N, N, Y, N],
    "intel_amx": ["Intel AMX (CPU)", N, N, N, N, N, N, N],
}
MLA_COLUMNS = ["Backend", "Native Page Sizes", "FP8 KV Cache", "FP4 KV Cache", "Chunked Prefix Cache", "Spec topk=1",
               "Spec topk>1"]
MLA = {
    "flashinfer": ["FlashInfer MLA", "1", N, Y, Y, Y, N],
    "flashmla": ["FlashMLA", "64", Y, Y, Y, Y, N],
    "cutlass_mla": ["Cutlass MLA", "128", Y, Y, Y, Y, N],
    "trtllm_mla": ["TRTLLM MLA (Blackwell)", "32 or 64", Y, Y, Y, Y, N],
    "fa3": ["FA3 (FlashAttention 3)", "n/a", N, N, Y, Y, ONE],
    "triton": ["Triton", "n/a", N, N, N, Y, ONE],
    "fa4": ["FA4", "1", N, Y, N, N, N],
    "ascend": ["Ascend MLA (NPU)", "128", N, N, N, N, N],
}
MODEL = {"MHA": "llama-3.1-8b", "MLA": "deepseek-v2-lite"}
# A device that each runs on; the H200 for the others.
DEVICE = {"fa4": "b200", "trtllm_mha": "b200", "cutlass_mla": "b200", "trtllm_mla": "b200", "aiter": "mi300x",
          "wave": "mi300x", "ascend": "ascend-910b", "intel_xpu": "max-1550", "intel_amx": "xeon-amx"}
# What a prefill-only backend is tried with: what reads the same caches.
DECODE = {"MHA": {"fa4": "triton"}, "MLA": {"fa4": "flashinfer"}}
# A page size that the cell does not name, and what becomes of it (None: refused).
PAGES = {"128": ("16", 128), "16, 32 or 64": ("128", 64), Y: ("16", 16), N: ("16", 16), "1": ("64", None),
         "64": ("16", 64), "32 or 64": ("128", 64), "n/a": ("16", 16)}
# SGLang gives these pages of their own, whatever their kernels could read.
OWN_PAGES = {"ascend": 128, "intel_xpu": 128}


class Backends(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory(prefix="tpsim-backends-")
        self.addCleanup(scratch.cleanup)
        self.folder = scratch.name

    def tpsim(self, *words):
        return subprocess.run([TPSIM, *words], cwd=self.folder, timeout=120, stdin=subprocess.DEVNULL,
                              capture_output=True, text=True)

    def json(self, *words):
        done = self.tpsim("backends", "--json", *words)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return json.loads(done.stdout)

    def model(self, backend, form):
        if backend == "dual_chunk_flash_attn":
            return "qwen2.5-14b-1m"
        return MODEL[form]

    def run_backend(self, backend, form, *extra, model=None):
        """server_args of the report, or the sentence of the refusal."""
        names = ["--attention-backend", backend]
        if backend in DECODE[form]:
            names = ["--prefill-attention-backend", backend, "--decode-attention-backend", DECODE[form][backend]]
        words = ["run", "--model-path", model or self.model(backend, form), "--hardware",
                 DEVICE.get(backend, "h200-sxm"), *names, *LOAD, "--report-dir", "out", *extra]
        done = self.tpsim(*words)
        if done.returncode == 0:
            with open(os.path.join(self.folder, "out", "report.json")) as file:
                return json.load(file)["server_args"]
        self.assertEqual(done.returncode, 2, shlex.join(words) + done.stderr)
        self.assertRegex(done.stderr, r"\Atpsim: --[^\n]+\n\Z")
        return done.stderr

    def cells(self):
        for form, matrix in (("MHA", MHA), ("MLA", MLA)):
            for backend, cells in matrix.items():
                yield form, backend, cells


class Printed(Backends):
    def tables(self, text):
        lines = [line for line in text.splitlines() if line.startswith("|") and not line.startswith("|--")]
        rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
        second = next(i for i, row in enumerate(rows) if row[1] == MLA_COLUMNS[1])
        return rows[:second], rows[second:]

    def test_both_matrices(self):
        done = self.tpsim("backends")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        # A backend that somebody adds has rows of its own.
        known = {cells[0] for cells in (*MHA.values(), *MLA.values())} | {"Backend"}
        mha, mla = ([cells for cells in table if cells[0] in known] for table in self.tables(done.stdout))
        self.assertEqual(mha, [MHA_COLUMNS, *MHA.values()])
        self.assertEqual(mla, [MLA_COLUMNS, *MLA.values()])

    def test_the_text_of_the_reference(self):
        if not os.path.exists(REFERENCE):
            self.skipTest(f"{REFERENCE} is absent")
        with open(REFERENCE) as file:
            expected = [line.rstrip("\n") for line in file if line.startswith("|")]
        titles = {line.split("|")[1] for line in expected}
        printed = [line for line in self.tpsim("backends").stdout.splitlines() if line.startswith("|")]
        self.assertEqual([line for line in printed if line.split("|")[1] in titles], expected)

    def test_json(self):
        told = self.json()
        self.assertEqual(told["mha"]["columns"], MHA_COLUMNS)
        for form, known in (("mha", MHA), ("mla", MLA)):
            self.assertEqual({row["backend"]: row["cells"] for row in told[form]["rows"] if row["backend"] in known},
                             known)

    def test_every_device_has_a_default(self):
        for choice in self.json()["defaults"]:
            with self.subTest(**choice):
                self.assertTrue(choice["reason"])
                if choice["hardware"] == "xeon-amx" and choice["form"] == "MLA":
                    self.assertEqual(choice["backend"], "")  # no backend of the matrix has MLA there
                else:
                    self.assertNotEqual(choice["backend"], "")

    def test_one_deployment(self):
        for hardware, model in (("h200-sxm", "llama-3.1-8b"), ("b200", "llama-3.1-8b"),
                                ("a100-sxm", "deepseek-v2-lite"), ("b200", "deepseek-v2-lite"),
                                ("mi300x", "llama-3.1-8b"), ("h200-sxm", "gpt-oss-20b"),
                                ("a100-sxm", "llama-4-scout"), ("h200-sxm", "qwen2.5-14b-1m"),
                                ("xeon-amx", "deepseek-v2-lite")):
            with self.subTest(hardware=hardware, model=model):
                told = self.json("--hardware", hardware, "--model-path", model)["deployments"]
                self.assertEqual(len(told), 1)
                self.check(hardware, model, told[0])
                text = self.tpsim("backends", "--hardware", hardware, "--model-path", model).stdout
                for cannot in told[0]["cannot_run"]:
                    self.assertIn(cannot["reason"], text)
                if told[0]["chosen"]:
                    self.assertIn(f"Chosen: {told[0]['chosen']} ({told[0]['reason']})", text)

    def check(self, hardware, model, told):
        """What is said is what `run` does."""
        names = [entry["backend"] for entry in told["can_run"] + told["cannot_run"]]
        self.assertEqual(sorted(names), sorted(set(names)))
        self.assertLessEqual(set(MHA) | set(MLA), set(names))
        base = ["run", "--model-path", model, "--hardware", hardware, "--tp", "4", *LOAD]
        done = self.tpsim(*base, "--report-dir", "out")
        if told["chosen"]:
            self.assertEqual(done.returncode, 0, done.stderr)
            with open(os.path.join(self.folder, "out", "report.json")) as file:
                report = json.load(file)
            self.assertEqual(report["backend"], told["chosen"])
            self.assertEqual(report["server_args"]["page_size"], str(told["can_run"][0]["page_size"]))
        else:
            self.assertEqual(done.returncode, 2, done.stderr)
        for entry in told["can_run"]:
            words = ["--attention-backend", entry["backend"]]
            if entry["prefill_only"]:
                words = ["--prefill-attention-backend", entry["backend"], "--decode-attention-backend",
                         entry["decode_backends"][0]]
            done = self.tpsim(*base, *words)
            self.assertEqual(done.returncode, 0, entry["backend"] + done.stderr)
        for entry in told["cannot_run"]:
            done = self.tpsim(*base, "--attention-backend", entry["backend"])
            self.assertEqual((done.returncode, done.stderr), (2, f"tpsim: {entry['reason']}\n"))


class Cells(Backends):
    """Every cell: what it allows runs, what it forbids is refused with a sentence that names the flag."""

    def test_plain(self):
        for form, backend, _ in self.cells():
            with self.subTest(form=form, backend=backend):
                done = self.run_backend(backend, form)
                self.assertIsInstance(done, dict, done)
                self.assertEqual(done["prefill_attention_backend"], backend)

    def test_pages(self):
        for form, backend, cells in self.cells():
            with self.subTest(form=form, backend=backend):
                given, expected = PAGES[cells[1]]
                if backend in OWN_PAGES:
                    expected = OWN_PAGES[backend]
                elif form == "MLA" and backend in DECODE[form]:  # its pages bind where it decodes
                    given, expected = "1", 1
                done = self.run_backend(backend, form, "--page-size", given)
                if expected is None:
                    self.assertIn(f"--page-size {given}: {backend} works on pages of {cells[1]} token", done)
                else:
                    self.assertIsInstance(done, dict, done)
                    self.assertEqual(done["page_size"], str(expected))

    def formats(self, column, dtype):
        for form, backend, cells in self.cells():
            with self.subTest(form=form, backend=backend, dtype=dtype):
                done = self.run_backend(backend, form, "--kv-cache-dtype", dtype)
                if cells[column] == N:
                    self.assertIsInstance(done, str)
                    self.assertIn(f"--kv-cache-dtype {dtype}: {backend} cannot read", done)
                elif backend in DECODE[form] and (MHA if form == "MHA" else MLA)[DECODE[form][backend]][column] == N:
                    self.assertIn(f"--kv-cache-dtype {dtype}: {DECODE[form][backend]} cannot read", done)
                else:
                    self.assertIsInstance(done, dict, done)
                    self.assertEqual(done["kv_cache_dtype"], dtype)

    def test_fp8(self):
        self.formats(2, "fp8_e4m3")

    def test_fp4(self):
        self.formats(3, "fp4_e2m1")

    def test_windows(self):
        for backend, cells in MHA.items():
            with self.subTest(backend=backend):
                done = self.run_backend(backend, "MHA", model="gemma-3-27b")
                if backend == "dual_chunk_flash_attn":
                    self.assertIn("dual_chunk_attention_config", done)
                elif cells[6] == Y:
                    self.assertIsInstance(done, dict, done)
                else:
                    self.assertIn(f"{backend}: has no sliding-window attention", done)

    def test_forms(self):
        """A backend that only one matrix has is refused for models of the other form; but for aiter, which SGLang
        chooses for MLA, too."""
        for backend in sorted((set(MHA) ^ set(MLA)) - {"aiter"}):
            form = "MLA" if backend in MHA else "MHA"
            with self.subTest(backend=backend):
                done = self.run_backend(backend, form, model=MODEL[form])
                self.assertIsInstance(done, str)
                self.assertIn("dual_chunk" if backend == "dual_chunk_flash_attn" else f"has no {form} form", done)

    def test_images_are_refused(self):
        done = self.run_backend("fa3", "MHA", "--mm-attention-backend", "fa3")
        self.assertIsInstance(done, str)
        self.assertIn("--mm-attention-backend", done)

    def speculate(self, backend, form, topk, *extra):
        return self.run_backend(backend, form, "--speculative-algorithm", "STANDALONE", "--speculative-draft-model-path",
                                self.model(backend, form), "--speculative-num-steps", "2", "--speculative-eagle-topk",
                                topk, "--speculative-num-draft-tokens", "3", "--speculative-accept-rates", "0.5",
                                *extra)

    def test_chains_of_drafts(self):
        for form, backend, cells in self.cells():
            with self.subTest(backend=backend, form=form):
                done = self.speculate(backend, form, "1")
                if cells[4 if form == "MHA" else 5] == Y:
                    self.assertIsInstance(done, dict, done)
                    self.assertEqual(done["speculative_num_draft_tokens"], "3")
                else:
                    self.assertIn(f"{backend}: does not verify drafts", str(done))

    def test_trees_of_drafts(self):
        for form, backend, cells in self.cells():
            with self.subTest(backend=backend, form=form):
                done = self.speculate(backend, form, "2")
                cell = cells[5 if form == "MHA" else 6]
                if cell == N:
                    self.assertIsInstance(done, str, done)
                    self.assertRegex(done, f"{backend}: does not verify drafts|{backend} verifies chains of drafts only")
                    continue
                self.assertIsInstance(done, dict, done)
                paged = self.speculate(backend, form, "2", "--page-size", "16")
                if backend == "flashinfer":
                    self.assertIsInstance(paged, dict, paged)
                elif cell == ONE:
                    self.assertIn("verifies trees of drafts on pages of 1 token only", str(paged))
                else:
                    self.assertIn(f"verified by flashinfer only, not {backend}", str(paged))

    def test_formats_of_single_backends(self):
        for words, expected in (
                (["--kv-cache-dtype", "fp8_e5m2"], "--kv-cache-dtype fp8_e5m2: fa3 cannot read"),
                (["--kv-cache-dtype", "fp8_e5m2", "--attention-backend", "flashinfer"], None)):
            done = self.tpsim("run", "--model-path", "llama-3.1-8b", "--hardware", "h200-sxm", *LOAD, *words)
            self.assertEqual(done.returncode, 2 if expected else 0, done.stderr)
            self.assertIn(expected or "", done.stderr)
        done = self.tpsim("run", "--model-path", "llama-3.1-8b", "--hardware", "mi300x", *LOAD, "--kv-cache-dtype",
                          "fp4_e2m1", "--attention-backend", "triton")
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("NVIDIA", done.stderr)


class NumericCells(Backends):
    """Every cell whose arithmetic differs, computed: the whole model against a reference in fp64 whose cache keeps
    the same rounded tokens, within what one rounding to the other side changes; forbidden ones are refused."""

    MODELS = os.path.join(SOURCE, "tests", "golden", "models")
    # Of a logit, relative to the largest (tiny models: a key has 16 elements).
    ERROR = {"float32": "1e-4", "fp8_e4m3": "1e-4", "fp4_e2m1": "1e-4"}

    def verify(self, backend, form, dtype, model, *extra):
        name = f"{backend}+{DECODE[form][backend]}" if backend in DECODE[form] else backend
        return self.tpsim("verify", "--model-path", os.path.join(self.MODELS, model), "--hardware",
                          DEVICE.get(backend, "h200-sxm"), "--attention-backends", name, "--kv-cache-dtype", dtype,
                          "--tolerance", self.ERROR[dtype], "--max-new-tokens", "6", "--no-progress", *extra)

    def computed(self, done):
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("All agree with the dense reference", done.stdout)

    def test_formats(self):
        model = {"MHA": "llama", "MLA": "deepseek-v2"}
        for form, backend, cells in self.cells():
            if backend == "dual_chunk_flash_attn":  # tests/unit/rank/numeric/dual_chunk_test.cc
                continue
            for dtype, column in (("float32", None), ("fp8_e4m3", 2), ("fp4_e2m1", 3)):
                decode = (MHA if form == "MHA" else MLA)[DECODE[form].get(backend, backend)]
                allowed = column is None or (cells[column] == Y and decode[column] == Y)
                with self.subTest(form=form, backend=backend, dtype=dtype):
                    done = self.verify(backend, form, dtype, model[form])
                    if allowed:
                        self.computed(done)
                    else:
                        self.assertEqual(done.returncode, 2, done.stdout + done.stderr)
                        self.assertRegex(done.stdout, rf"cannot: --kv-cache-dtype {dtype}: \w+ cannot read an fp")

    def test_windows(self):
        for backend, cells in MHA.items():
            with self.subTest(backend=backend):
                done = self.verify(backend, "MHA", "float32", "gemma3")
                if cells[6] == Y:
                    self.computed(done)
                else:
                    self.assertEqual(done.returncode, 2, done.stdout)
                    self.assertIn("cannot: --", done.stdout)

    def test_native_pages(self):
        for form, backend, cells in self.cells():
            sizes = {"n/a": ["16", "128"], Y: ["16", "128"], N: ["16"]}.get(
                cells[1], cells[1].replace(" or", ",").split(", "))
            if backend in OWN_PAGES or backend == "dual_chunk_flash_attn":
                sizes = []
            for size in sizes:
                if form == "MLA" and backend in DECODE[form]:  # its pages bind where it decodes
                    continue
                with self.subTest(form=form, backend=backend, page_size=size):
                    self.computed(self.verify(backend, form, "float32", {"MHA": "llama", "MLA": "deepseek-v2"}[form],
                                              "--page-size", size))

    def test_sparse_attention_selects_from_the_keys_that_it_keeps(self):
        for model in ("deepseek-v32", "glm-moe-dsa"):
            for extra in ([], ["--nsa-prefill-backend", "tilelang", "--nsa-decode-backend", "tilelang"]):
                with self.subTest(model=model, extra=extra):
                    self.computed(self.verify("nsa", "MLA", "fp8_e4m3", model, *extra))


# "Automatic Selection Logic" of the reference and of SGLang for what that leaves out, in its order: GPU, model, what is
# chosen, and the page size that this forces.
CHOICES = """
h100-sxm      llama-3.1-8b        fa3                    1
h200-sxm      Qwen/Qwen3-32B      fa3                    1
h20           llama-3.1-8b        fa3                    1
b200          llama-3.1-8b        trtllm_mha             64
gb200         Qwen/Qwen3-32B      trtllm_mha             64
b300          llama-3.3-70b       trtllm_mha             64
a100-sxm      llama-3.1-8b        flashinfer             1
a10           llama-3.1-8b        flashinfer             1
l40s          llama-3.1-8b        flashinfer             1
l4            llama-3.1-8b        flashinfer             1
rtx-4090      llama-3.1-8b        flashinfer             1
rtx-pro-6000  llama-3.1-8b        flashinfer             1
t4            llama-3.2-3b        triton                 1
h200-sxm      deepseek-v3         fa3                    1
h100-sxm      deepseek-v2-lite    fa3                    1
b200          deepseek-r1         trtllm_mla             64
gb200         kimi-k2             trtllm_mla             64
a100-sxm      deepseek-v2-lite    triton                 1
l40s          deepseek-v2-lite    triton                 1
rtx-pro-6000  deepseek-v2-lite    triton                 1
h200-sxm      gemma-3-27b         fa3                    1
a100-sxm      gemma-3-27b         flashinfer             1
b200          gemma-3-27b         trtllm_mha             64
h100-sxm      gpt-oss-120b        fa3                    1
b200          gpt-oss-120b        trtllm_mha             64
a100-sxm      gpt-oss-20b         triton                 1
rtx-pro-6000  gpt-oss-20b         triton                 1
mi300x        gpt-oss-120b        triton                 1
h100-sxm      llama-4-scout       fa3                    1
b200          llama-4-scout       trtllm_mha             64
a100-sxm      llama-4-scout       triton                 1
mi300x        llama-4-scout       aiter                  1
h200-sxm      qwen2.5-14b-1m      dual_chunk_flash_attn  1
a100-sxm      qwen2.5-14b-1m      dual_chunk_flash_attn  1
h200-sxm      deepseek-v3.2       nsa                    64
b200          deepseek-v3.2       nsa                    64
b200          zai-org/GLM-5-FP8   nsa                    64
rtx-pro-6000  zai-org/GLM-5-FP8   nsa                    64
mi355x        deepseek-v3.2       nsa                    64
h200-sxm      qwen3.5-397b-a17b   fa3                    1
b200          qwen3.5-397b-a17b   trtllm_mha             64
mi300x        llama-3.1-8b        aiter                  1
mi325x        deepseek-v3         triton                 1
mi300x        gemma-3-27b         triton                 1
max-1550      llama-3.1-8b        intel_xpu              128
max-1550      gemma-3-27b         intel_xpu              128
ascend-910b   llama-3.1-8b        ascend                 128
ascend-910b   deepseek-v2-lite    ascend                 128
xeon-amx      llama-3.1-8b        intel_amx              1
""".strip().splitlines()


class Chosen(Backends):
    def test_every_automatic_choice(self):
        for line in CHOICES:
            hardware, model, backend, page = line.split()
            with self.subTest(line=line):
                told = self.json("--hardware", hardware, "--model-path", model)["deployments"][0]
                self.assertEqual((told["chosen"], told["can_run"][0]["page_size"]), (backend, int(page)))
                self.assertTrue(told["reason"])

    def test_none_says_what_hinders(self):
        for hardware, model, text in (("xeon-amx", "deepseek-v2-lite", "--attention-backend: none runs this MLA model"),
                                      ("ascend-910b", "gemma-3-27b", "ascend has no sliding-window attention"),
                                      ("a100-sxm", "deepseek-v3.2", "nsa runs on hopper, blackwell")):
            with self.subTest(hardware=hardware, model=model):
                done = self.tpsim("run", "--model-path", model, "--hardware", hardware, *LOAD)
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertIn(text, done.stderr)


class Pairs(Backends):
    def pair(self, prefill, decode, hardware, model, *extra):
        return self.tpsim("run", "--model-path", model, "--hardware", hardware, *LOAD,
                          "--prefill-attention-backend", prefill, "--decode-attention-backend", decode, *extra)

    def refused(self, done, *expected):
        self.assertEqual(done.returncode, 2, done.stderr)
        for text in expected:
            self.assertIn(text, done.stderr)

    def test_fa4_is_for_prefill(self):
        done = self.tpsim("run", "--model-path", "llama-3.1-8b", "--hardware", "b200", *LOAD,
                          "--attention-backend", "fa4")
        self.refused(done, "--attention-backend fa4")
        self.refused(self.pair("triton", "fa4", "b200", "llama-3.1-8b"), "--decode-attention-backend fa4", "prefill only")

    def test_fa4_with_an_fp4_cache(self):
        fp4 = ("--kv-cache-dtype", "fp4_e2m1")
        self.assertEqual(self.pair("fa4", "triton", "b200", "llama-3.1-8b", *fp4).returncode, 0)
        self.refused(self.pair("fa4", "trtllm_mha", "b200", "llama-3.1-8b", *fp4), "fa4", "trtllm_mha", "--page-size")
        self.refused(self.pair("fa4", "flashinfer", "b200", "llama-3.1-8b", *fp4), "flashinfer cannot read an fp4")
        self.assertEqual(self.pair("fa4", "trtllm_mla", "b200", "deepseek-v2-lite", *fp4).returncode, 0)

    def test_each_half_is_checked(self):
        self.refused(self.pair("fa3", "triton", "h200-sxm", "llama-3.1-8b", "--kv-cache-dtype", "fp8_e4m3"),
                     "triton cannot read an fp8 KV cache (decode)")
        self.refused(self.pair("torch_native", "fa3", "h200-sxm", "deepseek-v2-lite"),
                     "--prefill-attention-backend torch_native: has no MLA form")
        self.refused(self.pair("flashinfer", "torch_native", "h200-sxm", "gemma-3-27b"),
                     "--decode-attention-backend torch_native: has no sliding-window attention")
        self.refused(self.pair("triton", "fa3", "b200", "llama-3.1-8b"), "--decode-attention-backend fa3", "b200")


class CompareAll(Backends):
    def compare(self, *words):
        done = self.tpsim("compare", "--attention-backends", "all", *LOAD[:-1], "--no-progress", "--report-dir", "out",
                          *words)
        self.assertEqual(done.returncode, 0, done.stderr)
        with open(os.path.join(self.folder, "out", "report.json")) as file:
            return json.load(file), done.stdout

    def test_runs_what_can_run_and_says_the_rest(self):
        for hardware, model in (("h200-sxm", "llama-3.1-8b"), ("h200-sxm", "deepseek-v2-lite"),
                                ("b200", "gpt-oss-20b")):
            with self.subTest(hardware=hardware, model=model):
                report, text = self.compare("--hardware", hardware, "--model-path", model)
                told = self.json("--hardware", hardware, "--model-path", model)["deployments"][0]
                ran = [run["backend"] for run in report["runs"]]
                self.assertEqual(len(ran), len(set(ran)))
                alone = {entry["backend"] for entry in told["can_run"] if not entry["prefill_only"]}
                self.assertEqual({name for name in ran if "+" not in name}, alone)
                halves = {entry["backend"] for entry in told["can_run"]}
                for name in ran:
                    self.assertLessEqual(set(name.split("+")), halves)
                refused = {entry["settings"]["attention_backends"]: entry["reason"] for entry in report["refused"]}
                self.assertEqual({name for name in refused if "+" not in name} | alone,
                                 {entry["backend"] for entry in told["can_run"] + told["cannot_run"]})
                with open(os.path.join(self.folder, "out", "report.html")) as file:
                    page = file.read()
                for reason in refused.values():
                    self.assertIn(reason, text)
                    self.assertIn(json.dumps(reason, ensure_ascii=False)[1:-1].replace("<", "\\u003c"), page)
                for sentence in report["left_out"]:
                    self.assertIn(sentence, text)

    def test_with_a_sweep(self):
        report, text = self.compare("--hardware", "h200-sxm", "--model-path", "llama-3.1-8b", "--tp", "1,2")
        self.assertTrue(any(run["backend"] == "flashinfer+fa3" for run in report["runs"]))
        self.assertIn("fa4", text)

    def test_stands_alone(self):
        done = self.tpsim("compare", "--attention-backends", "fa3,all", "--hardware", "h200-sxm", "--model-path",
                          "llama-3.1-8b", *LOAD)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("all stands for every backend and pair", done.stderr)


# What users type, from SGLang's user guide (../shared/reference/000, 001 and the headings of 002, and SGLang's own
# documentation for those), and a device for each.
GUIDE = """
a100-sxm     --model meta-llama/Meta-Llama-3.1-8B-Instruct --attention-backend flashinfer
b200         --tp 8 --model deepseek-ai/DeepSeek-V3 --attention-backend flashinfer --trust-remote-code
h100-sxm     --model meta-llama/Meta-Llama-3.1-8B-Instruct --attention-backend fa3
h200-sxm     --tp 8 --model deepseek-ai/DeepSeek-V3 --trust-remote-code --attention-backend fa3
h100-sxm     --model meta-llama/Meta-Llama-3.1-8B-Instruct --attention-backend triton
h200-sxm     --tp 8 --model deepseek-ai/DeepSeek-V3 --attention-backend triton --trust-remote-code
h100-sxm     --model meta-llama/Meta-Llama-3.1-8B-Instruct --attention-backend torch_native
h200-sxm     --tp 8 --model deepseek-ai/DeepSeek-R1 --attention-backend flashmla --trust-remote-code
h200-sxm     --tp 8 --model deepseek-ai/DeepSeek-R1 --attention-backend flashmla --kv-cache-dtype fp8_e4m3 --trust-remote-code
b200         --tp 8 --model deepseek-ai/DeepSeek-R1 --attention-backend trtllm_mla --trust-remote-code
b200         --tp 8 --model deepseek-ai/DeepSeek-R1 --attention-backend trtllm_mla --kv-cache-dtype fp8_e4m3 --trust-remote-code
b200         --tp 8 --model deepseek-ai/DeepSeek-R1 --prefill-attention-backend fa4 --trust-remote-code
b200         --tp 8 --model deepseek-ai/DeepSeek-R1 --attention-backend trtllm_mla --prefill-attention-backend fa4
b200         --tp 8 --model deepseek-ai/DeepSeek-R1 --attention-backend cutlass_mla --trust-remote-code
ascend-910b  --model meta-llama/Meta-Llama-3.1-8B-Instruct --attention-backend ascend
max-1550     --model meta-llama/Meta-Llama-3.1-8B-Instruct --attention-backend intel_xpu
mi300x       --model meta-llama/Meta-Llama-3.1-8B-Instruct --attention-backend wave
mi300x       --model meta-llama/Meta-Llama-3.1-8B-Instruct --attention-backend aiter
h100-sxm     --model meta-llama/Meta-Llama-3.1-8B-Instruct --attention-backend flex_attention
h200-sxm     --model Qwen/Qwen2.5-14B-Instruct-1M --attention-backend dual_chunk_flash_attn
b200         --tp 4 --model Qwen/Qwen3-235B-A22B-FP8 --attention-backend trtllm_mha --trust-remote-code
h200-sxm     --tp 8 --model deepseek-ai/DeepSeek-V3.2-Exp --trust-remote-code
h100-sxm     --tp 4 --model openai/gpt-oss-120b
""".strip().splitlines()


class Guide(Backends):
    """Each line runs after `tpsim run` in place of `python3 -m sglang.launch_server`."""

    def test_every_launch_command(self):
        for line in GUIDE:
            hardware, *words = shlex.split(line)
            with self.subTest(line=line):
                done = self.tpsim("run", *words, "--hardware", hardware, *LOAD)
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertRegex(done.stderr, r"\A(tpsim: warning: [^\n]+means nothing to a simulation\n)?"
                                 r"(tpsim: warning: SGLang 0\.5\.23 has [a-z_]+ no more [^\n]+\n)?\Z")


if __name__ == "__main__":
    TPSIM = os.path.abspath(sys.argv.pop(1))
    unittest.main()
