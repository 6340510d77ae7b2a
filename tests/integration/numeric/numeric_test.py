#!/usr/bin/env python3
"""Numeric execution seen from outside: tokens and logits of `tpsim generate` against Transformers' reference
values, and `verify`.

Usage: numeric_test.py TPSIM MODELS [CLASS ...]      MODELS: tests/golden/models
"""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

TPSIM = None
MODELS = None

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from mpi_environment import MPI_ENVIRONMENT  # noqa: E402
BACKENDS = ("fa3", "flashinfer", "triton", "torch_native")
# Others' layers but for a few switches, which make no difference to backends, layouts and schedules.
KIN = ("afmoe", "arcee", "chatglm", "cohere", "cohere2", "exaone", "exaone-moe", "exaone4", "gemma", "glm4", "granite",
       "granite-hybrid", "granite-moe", "internlm2", "ling", "mimo-v2", "ministral3", "olmo2", "olmo3", "olmoe", "phi3-longrope", "qwen2-moe",
       "stablelm", "starcoder2")


def models():
    return sorted(name for name in os.listdir(MODELS) if os.path.isdir(os.path.join(MODELS, name)) and name not in KIN)


def share(things, i, of):
    """All of `things` with --long; without, every `of`-th from the i-th on, so that each i has its own."""
    return list(things) if os.environ.get("TPSIM_LONG") else list(things)[i % of::of]


def executable(pid):
    """Its name; empty: it has ended."""
    try:
        return os.path.basename(os.readlink(f"/proc/{pid}/exe"))
    except OSError:
        return ""


def seconds_used(pid):
    """Of the CPU, by a process; 0: it has ended."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    except OSError:
        return 0


def reference(name):
    with open(os.path.join(MODELS, name, "reference.json")) as file:
        return json.load(file)


def config_of(model):
    with open(os.path.join(MODELS, model, "config.json")) as file:
        return json.load(file)


def has_windows(model):
    config = config_of(model)
    return bool(config.get("sliding_window")) and config.get("use_sliding_window", True)


def forbidden(model, backend, page):
    """What SGLang's matrices say against a backend of BACKENDS, as part of the sentence; None: it serves."""
    config = config_of(model)
    if config.get("index_topk"):
        return "has no attention to compressed tokens" if config.get("compress_ratios") else "has no sparse attention"
    if config.get("dual_chunk_attention_config"):
        return "has no dual chunk attention"
    if config.get("kv_lora_rank"):
        if backend == "torch_native":
            return "has no MLA form"
        return "works on pages of 1 token only" if backend == "flashinfer" and page != 1 else None
    if backend == "torch_native" and has_windows(model):
        return "has no sliding-window attention"
    chunks = bool(config.get("attention_chunk_size")) or bool(config.get("text_config", {}).get("attention_chunk_size"))
    if chunks and backend in ("flashinfer", "torch_native"):
        return "has no attention within chunks"
    if "GptOss" in config["architectures"][0] and backend in ("flashinfer", "torch_native"):
        return "has no attention sinks"
    if "Lfm2" in config["architectures"][0]:
        return "without attention" if backend == "triton" else "pages of 1 token" if page != 1 else None
    return None


class Numeric(unittest.TestCase):
    """A scratch folder, and ways to run tpsim in it."""

    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="tpsim-numeric-")
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def path(self, name):
        return os.path.join(self.folder, name)

    def command(self, words, processes=None):
        command = [TPSIM, *words]
        return command if processes is None else ["mpirun", "--quiet", "-n", str(processes)] + command

    def tpsim(self, *words, processes=None, timeout=240):
        return subprocess.run(self.command(words, processes), cwd=self.folder,
                              env={**os.environ, **MPI_ENVIRONMENT}, timeout=timeout, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def write_prompts(self, prompts, name="prompts.jsonl"):
        with open(self.path(name), "w") as file:
            for ids in prompts:
                file.write(json.dumps(ids if isinstance(ids, dict) else {"prompt_ids": ids}) + "\n")
        return self.path(name)

    def write_config(self, **changes):
        with open(self.path("config.json"), "w") as file:
            json.dump({"architectures": ["LlamaForCausalLM"], "hidden_size": 64, "intermediate_size": 96,
                       "num_hidden_layers": 2, "num_attention_heads": 8, "num_key_value_heads": 4, "vocab_size": 200,
                       "max_position_embeddings": 512, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
                       "torch_dtype": "float32", **changes}, file)

    def generate(self, model, prompts, *extra, processes=None, logits=False, new_tokens=64):
        words = ["generate", "--model-path", os.path.join(MODELS, model), "--prompts",
                 self.write_prompts(prompts), "--output", self.path("out.jsonl"), "--max-new-tokens",
                 str(new_tokens), "--ignore-eos", "--no-progress", *extra]
        if logits:
            words.append("--return-logits")
        done = self.tpsim(*words, processes=processes)
        self.assertEqual(done.returncode, 0, done.stderr)
        with open(self.path("out.jsonl")) as file:
            rows = [json.loads(line) for line in file]
        self.assertEqual(len(rows), len(prompts))
        return rows

    def check_reference(self, model, *extra, processes=None):
        wanted = reference(model)["prompts"]
        rows = self.generate(model, [p["prompt_ids"] for p in wanted], *extra, processes=processes, logits=True)
        for prompt, row in zip(wanted, rows):
            self.assertEqual(row["token_ids"], prompt["token_ids"])
            largest = max(abs(x) for x in prompt["logits"])
            for mine, theirs in zip(row["prompt_logits"], prompt["logits"], strict=True):
                self.assertLessEqual(abs(mine - theirs), 1e-4 * largest)

    def assert_refused(self, words, *expected, processes=None):
        with self.subTest(words=" ".join(words)):
            done = self.tpsim(*words, processes=processes)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertEqual(done.stdout, "")
            self.assertRegex(done.stderr, r"\Atpsim: [^\n]+\n\Z")
            for text in expected:
                self.assertIn(text, done.stderr)


class Reference(Numeric):
    """Every architecture: Transformers' logits and 64 greedy tokens."""

    def test_tp_1_2_4_8_in_one_process(self):
        for i, model in enumerate(models()):
            for tp in share((1, 2, 4, 8), i, 4):
                with self.subTest(model=model, tp=tp):
                    self.check_reference(model, "--tp", str(tp))

    def test_kin(self):
        for i, model in enumerate(KIN):
            # Granite 4's Mamba layers norm over all channels, which one rank must have.
            tps = (1,) if model == "granite-hybrid" else share((1, 2, 4, 8), i, 4)
            for tp in tps:
                with self.subTest(model=model, tp=tp):
                    self.check_reference(model, "--tp", str(tp))

    def test_every_backend_and_page_size(self):
        for i, model in enumerate(models()):
            for k, backend in share(enumerate(BACKENDS), i, len(BACKENDS)):
                page = (1, 16, 64)[(i + k) % 3]
                with self.subTest(model=model, backend=backend, page=page):
                    reason = forbidden(model, backend, page)
                    if reason:
                        self.assert_refused(["generate", "--model-path", os.path.join(MODELS, model), "--prompt-ids",
                                             "1", "--attention-backend", backend, "--page-size", str(page)], reason)
                        continue
                    self.check_reference(model, "--tp", "2", "--attention-backend", backend, "--page-size", str(page))


class Layouts(Numeric):
    """Transformers' tokens, as with --tp 1, however the model is shared among the ranks."""

    WHOLE = ("--tp", "8", "--dp-size", "8", "--enable-dp-attention", "--ep-size", "8")

    def test_data_parallel_attention_under_mpirun(self):
        for model in ("deepseek-v3", "deepseek-v2", "qwen3-moe"):
            with self.subTest(model=model):
                self.check_reference(model, *self.WHOLE, processes=8)
        for processes in (1, 2, 4):
            with self.subTest(processes=processes):
                self.check_reference("deepseek-v3", *self.WHOLE, processes=processes)

    def test_layouts_in_one_process(self):
        for model, words in (("deepseek-v3", "--dp-size 4 --enable-dp-attention --ep-size 2"),
                             ("deepseek-v3", "--dp-size 8 --enable-dp-attention --moe-a2a-backend deepep "
                                             "--moe-dense-tp-size 1 --enable-dp-lm-head"),
                             ("deepseek-v2", "--moe-a2a-backend deepep"),
                             ("qwen3-moe", "--attn-dp-size 2 --ep-size 4 --load-balance-method total_tokens"),
                             ("qwen3", "--dp-size 2 --enable-dp-attention --chunked-prefill-size 32"),
                             ("gpt-oss", "--dp-size 4 --enable-dp-attention --ep-size 4 --page-size 16"),
                             ("minimax-m2", "--dp-size 2 --enable-dp-attention --moe-a2a-backend deepep"),
                             ("mixtral", "--ep-size 4")):
            with self.subTest(model=model, words=words):
                self.check_reference(model, "--tp", "8", *words.split())

    def test_the_same_bits_for_any_number_of_processes(self):
        prompts = [p["prompt_ids"] for p in reference("deepseek-v3")["prompts"]]
        for words in (self.WHOLE, ("--tp", "8", "--dp-size", "4", "--enable-dp-attention", "--moe-a2a-backend", "deepep")):
            rows = [self.generate("deepseek-v3", prompts, *words, logits=True, processes=processes)
                    for processes in (None, 4)]
            self.assertEqual(rows[0], rows[1])

    def test_refused(self):
        base = ["generate", "--prompt-ids", "1", "--tp", "8", "--model-path"]
        self.assert_refused([*base, os.path.join(MODELS, "llama"), "--dp-size", "2", "--enable-dp-attention"],
                            "--enable-dp-attention: SGLang's LlamaForCausalLM")
        self.assert_refused([*base, os.path.join(MODELS, "qwen3-moe"), "--dp-size", "3", "--enable-dp-attention"],
                            "--dp-size 3: must divide --tp 8")
        self.assert_refused([*base, os.path.join(MODELS, "gpt-oss"), "--moe-a2a-backend", "deepep"],
                            "--moe-a2a-backend deepep: SGLang's GptOssForCausalLM has no such path")
        self.assert_refused([*base, os.path.join(MODELS, "qwen3"), "--ep-size", "2"], "has no experts")
        self.assert_refused([*base, os.path.join(MODELS, "qwen3"), "--enable-dp-lm-head"], "--enable-dp-lm-head: needs")


class Processes(Numeric):
    """The same under mpirun."""

    def test_each_number_of_processes(self):
        """Of all models with `launch/test --long`; else of one in four."""
        for model in share(models(), 0, 4):
            with self.subTest(model=model):
                self.check_reference(model, "--tp", "8", processes=8)
        for processes in (1, 2, 4):
            with self.subTest(processes=processes):
                self.check_reference(models()[0], "--tp", "8", processes=processes)

    def test_logits_have_the_same_bits(self):
        prompts = [p["prompt_ids"] for p in reference(models()[0])["prompts"]]
        rows = [self.generate(models()[0], prompts, "--tp", "8", processes=p, logits=True) for p in (None, 2, 4, 8)]
        for other in rows[1:]:
            self.assertEqual(other, rows[0])

    def test_a_killed_rank_ends_the_run(self):
        self.write_config(hidden_size=512, intermediate_size=2048, num_hidden_layers=8)
        words = ["generate", "--model-path", self.folder, "--load-format", "dummy", "--prompts",
                 self.write_prompts([[1, 2, 3]] * 64), "--max-new-tokens", "480", "--ignore-eos", "--tp", "2",
                 "--output", self.path("out.jsonl")]
        # mpirun kills who does not end within this: a second, which is short on a busy machine.
        patient = {**os.environ, **MPI_ENVIRONMENT, "OMPI_MCA_odls_base_sigkill_timeout": "8"}
        child = subprocess.Popen(self.command(words, 2), cwd=self.folder, env=patient, stdin=subprocess.DEVNULL,
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        ranks, deadline = [], time.monotonic() + 60
        while (len(ranks) < 2 or min(map(seconds_used, ranks)) < 3) and child.poll() is None and time.monotonic() < deadline:
            time.sleep(0.1)
            found = subprocess.run(["pgrep", "-f", self.folder], stdout=subprocess.PIPE, text=True).stdout.split()
            ranks = [pid for pid in map(int, found) if executable(pid).startswith("tpsim")]
        self.assertIsNone(child.poll(), "the run was over before a rank could be killed")
        os.kill(max(ranks), signal.SIGKILL)
        child.communicate(timeout=60)
        self.assertNotEqual(child.returncode, 0)
        # What was finished is written; what was not says so.
        with open(self.path("out.jsonl")) as file:
            rows = [json.loads(line) for line in file]
        self.assertEqual(len(rows), 64)
        self.assertTrue(any(row.get("stopped_early") for row in rows))
        self.assertTrue(all(row.get("stopped_early") or len(row["token_ids"]) == 480 for row in rows))


    def test_one_rank_that_cannot_load_ends_the_run(self):
        model = os.path.join(MODELS, "llama-linear-rope")
        shutil.copytree(model, self.path("bad"))
        os.truncate(self.path("bad/model.safetensors"), 90000)
        words = ["generate", "--tp", "4", "--prompt-ids", "1,2", "--model-path"]
        for order in ((model, self.path("bad"), model, model), (self.path("bad"), model, model, model)):
            command = ["mpirun", "--quiet"]
            for i, folder in enumerate(order):
                command += ([":"] if i else []) + ["-n", "1", TPSIM, *words, folder]
            done = subprocess.run(command, cwd=self.folder, env={**os.environ, **MPI_ENVIRONMENT}, timeout=30,
                                  stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn("bad/model.safetensors", done.stderr)
            self.assertIn("truncated", done.stderr)


class Schedules(Numeric):
    """The schedule must not change what a model says."""

    def conversations(self, model):
        chooser = random.Random(7)
        vocab = config_of(model)["vocab_size"]
        system = [chooser.randrange(vocab) for _ in range(24)]
        prompts, turn = [], list(system)
        for _ in range(20):
            turn = (turn if chooser.random() < 0.6 and len(turn) < 90 else list(system)) + \
                [chooser.randrange(vocab) for _ in range(chooser.randrange(1, 14))]
            prompts.append(list(turn))
        return prompts

    def test_reuse_eviction_chunks_and_retraction(self):
        for i, model in enumerate((models()[0], "minimax-m2", "step3p5", "gemma4-moe")):
            self.check_schedules(model, i)

    def check_schedules(self, model, i):
        prompts = self.conversations(model)
        plain = self.generate(model, prompts, "--disable-radix-cache", "--max-running-requests", "1", new_tokens=24)
        for extra in share((
            [],
            ["--tp", "4", "--page-size", "16"],
            ["--chunked-prefill-size", "16"],
            ["--chunked-prefill-size", "16", "--enable-mixed-chunk", "--attention-backend", "triton"],
            ["--max-total-tokens", "256", "--schedule-conservativeness", "0"],  # evicts and retracts
            ["--max-total-tokens", "320", "--schedule-conservativeness", "0", "--chunked-prefill-size", "16", "--tp",
             "2", "--page-size", "16"],
            ["--disable-radix-cache", "--max-total-tokens", "256", "--schedule-conservativeness", "0"],
            ["--schedule-policy", "lpm", "--disable-overlap-schedule", "--attention-backend", "flashinfer"],
        ), i, 3):
            with self.subTest(model=model, extra=" ".join(extra)):
                rows = self.generate(model, prompts, "--check-invariants", *extra, new_tokens=24)
                self.assertEqual(rows, plain)

    def test_pages_that_were_in_host_memory(self):
        """Evicted prefixes come back from the copy in host memory; what else is in the pool then is overwritten."""
        policies = ("write_through", "write_through_selective", "write_back")
        for i, (model, tp) in enumerate((("llama", 1), ("deepseek-v2", 2), ("llama", 4), ("deepseek-v3", 8), ("deepseek-v32", 2),
                                         ("gemma3", 2), ("qwen3-moe", 8))):
            sparse = model == "deepseek-v32"  # pages of 64
            chooser = random.Random(i)
            tokens = lambda n: [chooser.randrange(config_of(model)["vocab_size"]) for _ in range(n)]  # noqa: E731
            heads = [tokens(150 if sparse else 75) for _ in range(6)]
            # Again and again, some of a prefix with another end: copies are split.
            prompts = [head[:chooser.randrange(70, 150) if sparse else chooser.randrange(35, 75)] + tokens(5)
                       for _ in range(3) for head in heads for _ in range(2)]
            plain = self.generate(model, prompts, "--disable-radix-cache", "--max-running-requests", "1", new_tokens=12)
            for k, policy in share(enumerate(policies), i, len(policies)):
                page = 64 if sparse else (1, 16)[(i + k) % 2]
                extra = ["--tp", str(tp), "--page-size", str(page), "--hicache-write-policy", policy,
                         "--max-total-tokens", str(640 if sparse else 320), "--disable-hybrid-swa-memory"]
                with self.subTest(model=model, extra=" ".join(extra)):
                    rows = self.generate(model, prompts, "--enable-hierarchical-cache", "--hicache-ratio", "3",
                                         "--max-running-requests", "2", "--check-invariants", *extra, new_tokens=12)
                    loaded = sum(row.pop("cached_host") for row in rows)
                    self.assertGreater(loaded, 100)
                    self.assertEqual(rows, plain)

    def test_windows_that_let_go(self):
        """Without a radix pool, window layers free what slid out, and pages change hands."""
        for i, model in enumerate(("gemma3", "gpt-oss", "mistral", "step3p5", "gemma4")):
            prompts = self.conversations(model)
            plain = self.generate(model, prompts, "--max-running-requests", "1", new_tokens=40)
            for extra in share(([], ["--page-size", "16", "--tp", "2"], ["--chunked-prefill-size", "16"],
                                ["--max-total-tokens", "256", "--schedule-conservativeness", "0"]), i, 2):
                with self.subTest(model=model, extra=" ".join(extra)):
                    self.assertEqual(self.generate(model, prompts, "--disable-radix-cache", "--check-invariants",
                                                   *extra, new_tokens=40), plain)

    def test_a_pool_of_windows(self):
        """Window layers with a pool of their own: prefixes that are reused where their window still is, tombstones,
        branches, requests that wait for windows."""
        prompts = self.conversations("gpt-oss")
        plain = self.generate("gpt-oss", prompts, "--disable-hybrid-swa-memory", "--max-running-requests", "1",
                              new_tokens=40)
        for extra in ([], ["--swa-full-tokens-ratio", "0.3", "--max-total-tokens", "400"],
                      ["--swa-full-tokens-ratio", "0.2", "--max-total-tokens", "600", "--chunked-prefill-size", "16"],
                      ["--swa-full-tokens-ratio", "0.5", "--max-total-tokens", "480", "--page-size", "16", "--tp", "2",
                       "--chunked-prefill-size", "32", "--enable-mixed-chunk"],
                      ["--disable-radix-cache", "--max-running-requests", "4", "--chunked-prefill-size", "16"]):
            with self.subTest(extra=" ".join(extra)):
                rows = self.generate("gpt-oss", prompts, "--check-invariants", "--schedule-conservativeness", "0", *extra,
                                     new_tokens=40)
                self.assertEqual(rows, plain)

    def prompts_that_go_on(self, model):
        """Prompts that begin alike, branch off, and go on where an answer ended."""
        chooser = random.Random(11)
        vocab = config_of(model).get("vocab_size") or config_of(model)["text_config"]["vocab_size"]

        def fresh(count):
            return [chooser.randrange(vocab) for _ in range(count)]

        system = fresh(80)
        documents = [system + fresh(chooser.randrange(20, 50)) for _ in range(3)]
        first = [chooser.choice(documents) + fresh(chooser.randrange(1, 10)) for _ in range(8)]
        answers = self.generate(model, first, "--disable-radix-cache", "--max-running-requests", "1", new_tokens=40)
        later = [p + row["token_ids"] + fresh(chooser.randrange(1, 12)) for p, row in zip(first, answers)]
        return first + later + [system + fresh(5), documents[1] + fresh(3), first[2] + fresh(2)]

    def test_states_of_prefixes(self):
        """Linear layers go on from states that the radix pool kept: the same tokens."""
        for i, model in enumerate(("qwen3-next", "qwen3.5-moe", "lfm2", "kimi-linear")):
            prompts = self.prompts_that_go_on(model)
            plain = self.generate(model, prompts, "--disable-radix-cache", "--max-running-requests", "1", new_tokens=30)
            for extra in share((
                ["--max-running-requests", "1"],
                ["--max-running-requests", "1", "--tp", "2", "--mamba-track-interval", "64"],
                ["--max-running-requests", "3", "--mamba-track-interval", "64", "--chunked-prefill-size", "64"],
                ["--max-mamba-cache-size", "10", "--mamba-track-interval", "64"],  # two run, states are evicted
                ["--page-size", "16", "--disable-overlap-schedule", "--max-mamba-cache-size", "9"],
                ["--max-running-requests", "2", "--enable-mixed-chunk", "--chunked-prefill-size", "32", "--tp", "2",
                 "--mamba-track-interval", "64"],
                ["--disable-overlap-schedule", "--mamba-radix-cache-strategy", "no_buffer", "--max-mamba-cache-size", "7"],
                ["--disable-overlap-schedule", "--chunked-prefill-size", "32", "--tp", "2", "--enable-mixed-chunk"],
                ["--max-total-tokens", "640", "--schedule-conservativeness", "0", "--mamba-track-interval", "64"],
            ), i, 3):
                if model == "lfm2" and "--page-size" in extra:
                    continue  # SGLang keeps its states beside pages of one token only
                with self.subTest(model=model, extra=" ".join(extra)):
                    rows = self.generate(model, prompts, "--check-invariants", *extra, new_tokens=30)
                    self.assertEqual(rows, plain)

    def test_states_of_prefixes_under_mpirun(self):
        prompts = self.prompts_that_go_on("qwen3-next")
        plain = self.generate("qwen3-next", prompts, "--disable-radix-cache", "--max-running-requests", "1", new_tokens=8)
        rows = self.generate("qwen3-next", prompts, "--tp", "2", "--max-running-requests", "2", processes=2, new_tokens=8)
        self.assertEqual(rows, plain)

    def test_sparse_attention(self):
        """Index keys in pages, chunks, retraction, every kernel's plan: the same tokens."""
        for model in models():
            if not config_of(model).get("index_topk") or config_of(model).get("compress_ratios"):
                continue
            prompts = self.conversations(model)[:12]
            plain = self.generate(model, prompts, "--disable-radix-cache", "--max-running-requests", "1", new_tokens=24)
            for extra in (
                ["--tp", "4"],
                ["--chunked-prefill-size", "64", "--enable-mixed-chunk"],
                ["--max-total-tokens", "512", "--schedule-conservativeness", "0", "--tp", "2"],
                ["--attention-backend", "dsa", "--nsa-prefill-backend", "fa3", "--nsa-decode-backend", "tilelang"],
                ["--hardware", "b200", "--dsa-decode-backend", "trtllm"],
            ):
                with self.subTest(model=model, extra=" ".join(extra)):
                    self.assertEqual(self.generate(model, prompts, "--check-invariants", *extra, new_tokens=24), plain)
        self.assert_refused(["generate", "--model-path", os.path.join(MODELS, "llama"), "--prompt-ids", "1",
                             "--nsa-decode-backend", "fa3"], "--nsa-decode-backend", "no sparse attention")
        self.assert_refused(["generate", "--model-path", os.path.join(MODELS, "deepseek-v32"), "--prompt-ids", "1",
                             "--dsa-prefill-backend", "fa2"], "--nsa-prefill-backend fa2", "flashmla_sparse")

    def test_compressed_attention(self):
        """Latents, entries and what is compressed, in pages: prefixes, chunks that cut groups, retraction, layouts."""
        chooser = random.Random(5)

        def fresh(count):
            return [chooser.randrange(131) for _ in range(count)]

        def check(prompts, *variants):
            plain = self.generate("deepseek-v4", prompts, "--disable-radix-cache", "--max-running-requests", "1", new_tokens=40)
            for extra in variants:
                with self.subTest(extra=extra):
                    rows = self.generate("deepseek-v4", prompts, "--check-invariants", *extra.split(), new_tokens=40)
                    self.assertEqual(rows, plain)

        system = fresh(300)
        check([system[:cut] + fresh(own) for cut, own in ((300, 9), (300, 250), (280, 1), (0, 30), (300, 9), (256, 2))],
              "--tp 2 --max-running-requests 2 --chunked-prefill-size 256 --enable-mixed-chunk",
              "--max-total-tokens 1280 --swa-full-tokens-ratio 1 --schedule-conservativeness 0",  # evicts
              "--disable-radix-cache",  # windows let go
              "--tp 4 --dp-size 2 --enable-dp-attention --moe-a2a-backend deepep")
        # All need another page at once: three are retracted.
        check([fresh(240) for _ in range(8)],
              "--max-total-tokens 2304 --swa-full-tokens-ratio 0.6 --schedule-conservativeness 0")
        base = ["generate", "--prompt-ids", "1", "--model-path", os.path.join(MODELS, "deepseek-v4")]
        self.assert_refused([*base, "--kv-cache-dtype", "fp8_e4m3"], "kept in float32 only")
        self.assert_refused([*base, "--speculative-algorithm", "EAGLE"], "reads the streams of deepseek-v4")

    def test_sampling_depends_on_the_seed_alone(self):
        model = models()[0]
        prompts = self.conversations(model)[:8]
        hot = ["--temperature", "0.8", "--top-k", "20", "--top-p", "0.9", "--sampling-seed", "5"]
        first = self.generate(model, prompts, *hot, new_tokens=20)
        again = self.generate(model, prompts, *hot, "--tp", "4", "--max-running-requests", "2", new_tokens=20)
        other = self.generate(model, prompts, *hot[:-1], "6", new_tokens=20)
        greedy = self.generate(model, prompts, new_tokens=20)
        self.assertEqual(first, again)
        self.assertNotEqual(first, other)
        self.assertNotEqual(first, greedy)


class Speculative(Numeric):
    """What is drafted changes how fast tokens come, never which."""

    NGRAM = ["--speculative-algorithm", "NGRAM", "--speculative-num-draft-tokens", "6"]

    def conversations(self, model):
        chooser = random.Random(11)
        vocab = config_of(model)["vocab_size"]
        phrase = [chooser.randrange(vocab) for _ in range(9)]
        prompts = []
        for i in range(14):
            prompts.append(phrase * 2 + [chooser.randrange(vocab) for _ in range(chooser.randrange(1, 20))] + phrase[:i % 9 + 1])
        return prompts

    def standalone(self, draft):
        return ["--speculative-algorithm", "STANDALONE", "--speculative-draft-model-path", os.path.join(MODELS, draft),
                "--speculative-num-steps", "3", "--speculative-eagle-topk", "1"]

    def test_ngram_of_every_family(self):
        for model in share(("llama", "qwen3", "mixtral", "gemma3", "gpt-oss", "deepseek-v2", "glm4-moe", "minimax-m2",
                            "gemma4-moe"), 0, 2):
            with self.subTest(model=model):
                prompts = self.conversations(model)[:6]
                plain = self.generate(model, prompts, new_tokens=32)
                self.assertEqual(self.generate(model, prompts, *self.NGRAM, "--tp", "2", new_tokens=32), plain)

    def test_ngram_under_every_schedule(self):
        prompts = self.conversations("llama")
        plain = self.generate("llama", prompts, "--disable-radix-cache", "--max-running-requests", "1", new_tokens=32)
        chain = ["--speculative-ngram-max-bfs-breadth", "1"]
        for extra in share((
            [],
            chain,
            ["--attention-backend", "flashinfer", "--page-size", "16", "--tp", "2"],
            ["--attention-backend", "triton"],
            [*chain, "--attention-backend", "fa3", "--page-size", "64"],
            [*chain, "--hardware", "b200", "--attention-backend", "trtllm_mha", "--page-size", "32"],
            ["--prefill-attention-backend", "torch_native", "--decode-attention-backend", "fa3",
             "--speculative-attention-mode", "decode"],
            ["--sglang-version", "0.5.12"],
            ["--sglang-version", "0.5.12", *chain, "--page-size", "16", "--attention-backend", "fa3"],
            ["--disable-overlap-schedule"],
            ["--chunked-prefill-size", "16"],
            ["--disable-radix-cache"],
            ["--max-total-tokens", "256", "--schedule-conservativeness", "0"],  # evicts and retracts
            ["--max-total-tokens", "256", "--schedule-conservativeness", "0", "--sglang-version", "0.5.12", "--tp", "2"],
        ), 0, 2):
            with self.subTest(extra=" ".join(extra)):
                rows = self.generate("llama", prompts, *self.NGRAM, "--check-invariants", *extra, new_tokens=32)
                self.assertEqual(rows, plain)

    def test_a_second_model_drafts(self):
        prompts = self.conversations("llama")
        plain = self.generate("llama", prompts, "--disable-radix-cache", "--max-running-requests", "1", new_tokens=32)
        for i, draft in enumerate(("llama", "llama-llama3-rope")):  # often right, and never
            for extra in share((
                [],
                ["--tp", "2"],
                ["--page-size", "16", "--attention-backend", "flashinfer"],
                ["--page-size", "64", "--attention-backend", "triton", "--chunked-prefill-size", "64"],
                ["--sglang-version", "0.5.12", "--disable-overlap-schedule"],
                ["--max-total-tokens", "256", "--schedule-conservativeness", "0"],
            ), i, 2):
                with self.subTest(draft=draft, extra=" ".join(extra)):
                    rows = self.generate("llama", prompts, *self.standalone(draft), "--check-invariants", *extra,
                                         new_tokens=32)
                    self.assertEqual(rows, plain)

    def test_under_mpirun(self):
        prompts = self.conversations("llama")[:6]
        plain = self.generate("llama", prompts, new_tokens=24)
        for words in (self.NGRAM, self.standalone("llama")):
            rows = self.generate("llama", prompts, *words, "--tp", "2", processes=2, new_tokens=24)
            self.assertEqual(rows, plain)

    def test_sampled_tokens_are_the_same_too(self):
        prompts = self.conversations("llama")[:6]
        hot = ["--temperature", "0.7", "--top-k", "20", "--sampling-seed", "5"]
        plain = self.generate("llama", prompts, *hot, new_tokens=24)
        self.assertEqual(self.generate("llama", prompts, *hot, *self.NGRAM, new_tokens=24), plain)

    def test_what_was_accepted_is_reported(self):
        with open(self.path("trace.jsonl"), "w") as file:
            for i in range(6):
                file.write(json.dumps({"arrival_time": 0, "max_new_tokens": 16, "prompt": [[5 + i, 20]]}) + "\n")
        done = self.tpsim("run", "--executor", "numeric", "--model-path", os.path.join(MODELS, "llama"), "--trace",
                          self.path("trace.jsonl"), *self.standalone("llama"), "--report-dir", self.path("report"))
        self.assertEqual(done.returncode, 0, done.stderr)
        with open(self.path("report/report.json")) as file:
            report = json.load(file)
        # It drafts for itself, but never saw the first token (draft_test.py has exact numbers).
        self.assertGreater(report["accept_length"], 1)
        self.assertLessEqual(report["accept_length"], 4)
        self.assertEqual(report["speculation"]["algorithm"], "STANDALONE")

    def test_refused(self):
        base = ["generate", "--model-path", os.path.join(MODELS, "llama"), "--prompt-ids", "1"]
        self.assert_refused([*base, *self.NGRAM, "--attention-backend", "torch_native"], "does not verify drafts")
        self.assert_refused([*base, *self.NGRAM, "--speculative-accept-rates", "0.5"], "verify drafts themselves")
        self.assert_refused(["generate", "--prompt-ids", "1", "--model-path", os.path.join(MODELS, "minimax-m3"),
                             *self.NGRAM], "trees of drafts over the chosen blocks of minimax-m3")


class Verify(Numeric):
    def test_every_model(self):
        """Of all models with `launch/test --long`; else of one in four."""
        chosen = share(models(), 1, 4)
        for model in chosen:
            with self.subTest(model=model):
                done = self.tpsim("verify", "--model-path", os.path.join(MODELS, model), "--tp", "8",
                                  "--attention-backends", "all", "--max-new-tokens", "8")
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
                self.assertIn("All agree with the dense reference", done.stdout)

    def test_notices_coarse_arithmetic(self):
        """What rounds where the reference does not is found; a cache of a narrow format is the reference's, too."""
        verify = ["verify", "--model-path", os.path.join(MODELS, "llama"), "--attention-backends", "flashinfer",
                  "--max-new-tokens", "4"]
        done = self.tpsim(*verify, "--dtype", "bfloat16")
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertIn("DISAGREES", done.stdout)
        done = self.tpsim(*verify, "--kv-cache-dtype", "fp8_e5m2")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)


if __name__ == "__main__":
    TPSIM = os.path.abspath(sys.argv.pop(1))
    MODELS = os.path.abspath(sys.argv.pop(1))
    unittest.main()
