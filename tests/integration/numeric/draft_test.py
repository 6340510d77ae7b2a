#!/usr/bin/env python3
"""Drafts that are computed, by a second model or a head that reads the target's hidden states: what they guess is what
plain PyTorch guesses (tests/references/make_draft_heads.py), and the answer is that of decoding one by one.

Usage: draft_test.py TPSIM MODELS [CLASS ...]      MODELS: tests/golden/models; heads lie beside it
"""

import json
import os
import shutil
import sys
import unittest

import numeric_test as numeric
from numeric_test import share

HEADS = None
NAMES = ("eagle", "eagle3", "nextn", "standalone")


def head_reference(name):
    with open(os.path.join(HEADS, name, "reference.json")) as file:
        return json.load(file)


def tree_flags(num_steps, topk, num_draft_tokens):
    return ["--speculative-num-steps", str(num_steps), "--speculative-eagle-topk", str(topk),
            "--speculative-num-draft-tokens", str(num_draft_tokens)]


class Draft(numeric.Numeric):
    def target(self, name):
        """The folder of a target, which of NEXTN has the layer for the next token in it."""
        target = head_reference(name)["target"]
        folder = next(at for at in (os.path.join(numeric.MODELS, target), os.path.join(HEADS, target))
                      if os.path.isdir(at))
        if name != "nextn":
            return folder
        merged = self.path("target")
        if not os.path.isdir(merged):
            os.mkdir(merged)
            shutil.copy(os.path.join(folder, "config.json"), merged)
            shutil.copy(os.path.join(folder, "model.safetensors"), os.path.join(merged, "target.safetensors"))
            shutil.copy(os.path.join(HEADS, name, "model.safetensors"), os.path.join(merged, "layer.safetensors"))
        return merged

    def draft_flags(self, name):
        words = ["--speculative-algorithm", head_reference(name)["algorithm"]]
        if name == "nextn":
            return words
        at = self.target(name) if name == "standalone" else os.path.join(HEADS, name)
        return [*words, "--speculative-draft-model-path", at]

    def prompts(self, name):
        """Texts that the head has learned, up to somewhere: it guesses well behind them, and they share prefixes."""
        run = head_reference(name)["runs"][0]
        return [(prompt["prompt_ids"] + prompt["token_ids"])[:len(prompt["prompt_ids"]) + more]
                for prompt in run["prompts"] for more in (0, 5, 12, 23)]

    def write_trace(self, prompts, new_tokens):
        with open(self.path("trace.jsonl"), "w") as file:
            for ids in prompts:
                file.write(json.dumps({"arrival_time": 0, "max_new_tokens": new_tokens,
                                       "prompt": [[token, 1] for token in ids]}) + "\n")
        return self.path("trace.jsonl")

    def run_report(self, name, trace, *words, processes=None):
        done = self.tpsim("run", "--executor", "numeric", "--model-path", self.target(name), "--trace", trace,
                          *self.draft_flags(name), *words, "--report-dir", self.path("report"), processes=processes)
        self.assertEqual(done.returncode, 0, done.stderr)
        with open(self.path("report/report.json")) as file:
            return json.load(file)


class Kept(Draft):
    """How much of its drafts every step keeps."""

    def check(self, name, run, *extra, processes=None):
        kept = [length for prompt in run["prompts"] for length in prompt["accept_lengths"]]
        trace = self.write_trace([prompt["prompt_ids"] for prompt in run["prompts"]], head_reference(name)["new_tokens"])
        tree = tree_flags(run["num_steps"], run["topk"], run["num_draft_tokens"])
        report = self.run_report(name, trace, *tree, "--disable-overlap-schedule", *extra, processes=processes)
        self.assertEqual(report["accept_length"], sum(kept) / len(kept))
        for length, fraction in enumerate(report["speculation"]["accept_length_fraction"], 1):
            self.assertEqual(fraction, kept.count(length) / len(kept))

    def test_as_plain_pytorch_keeps(self):
        for i, name in enumerate(NAMES):
            for k, run in enumerate(head_reference(name)["runs"]):
                for extra in share(([], ["--tp", "2"], ["--tp", "8"], ["--chunked-prefill-size", "16"]), i + k, 4):
                    with self.subTest(name=name, topk=run["topk"], extra=" ".join(extra)):
                        self.check(name, run, *extra)

    def test_pages_and_backends(self):
        for i, name in enumerate(("eagle", "eagle3", "standalone")):
            chain, pair = head_reference(name)["runs"][:2]
            for run, extra in share(((chain, ["--page-size", "16", "--attention-backend", "fa3"]),
                               (chain, ["--page-size", "64", "--attention-backend", "triton"]),
                               (pair, ["--page-size", "16", "--attention-backend", "flashinfer"]),
                               (pair, ["--attention-backend", "triton"]),
                               (pair, ["--attention-backend", "flashinfer", "--sglang-version", "0.5.12"])), i, 3):
                with self.subTest(name=name, topk=run["topk"], extra=" ".join(extra)):
                    self.check(name, run, *extra)

    def test_under_mpirun(self):
        for name in NAMES:
            with self.subTest(name=name):
                self.check(name, head_reference(name)["runs"][1], "--tp", "4", processes=2)


class Tokens(Draft):
    """The tokens of decoding one by one."""

    def check(self, name, tree, *extra, processes=None, new_tokens=40, plain=None):
        words = [*self.draft_flags(name), *tree_flags(*tree), "--check-invariants", *extra]
        rows = self.generate(self.target(name), self.prompts(name), *words, processes=processes, new_tokens=new_tokens)
        self.assertEqual([row["token_ids"] for row in rows], plain or self.plain(name, new_tokens))

    def plain(self, name, new_tokens=40):
        rows = self.generate(self.target(name), self.prompts(name), "--disable-radix-cache", "--max-running-requests", "1",
                             new_tokens=new_tokens)
        return [row["token_ids"] for row in rows]

    def test_of_the_reference(self):
        for name in NAMES:
            run = head_reference(name)["runs"][2]
            rows = self.generate(self.target(name), [prompt["prompt_ids"] for prompt in run["prompts"]],
                                 *self.draft_flags(name), *tree_flags(run["num_steps"], run["topk"],
                                                                      run["num_draft_tokens"]))
            self.assertEqual([row["token_ids"] for row in rows], [prompt["token_ids"] for prompt in run["prompts"]])

    def test_every_tp(self):
        for i, name in enumerate(NAMES):
            plain = self.plain(name)
            for tp, tree in share(((1, (3, 1, 4)), (2, (3, 2, 6)), (4, (4, 4, 8)), (8, (2, 3, 9))), i, 4):
                with self.subTest(name=name, tp=tp, tree=tree):
                    self.check(name, tree, "--tp", str(tp), plain=plain)

    def test_every_schedule(self):
        for i, name in enumerate(NAMES):
            plain = self.plain(name)
            mla = name == "nextn"
            for tree, extra in share((
                ((3, 1, 4), []),
                ((3, 1, 4), ["--disable-radix-cache"]),
                ((3, 1, 4), ["--page-size", "64" if mla else "16"]),
                ((1, 1, 2), ["--chunked-prefill-size", "16"]),
                ((3, 2, 6), ["--attention-backend", "triton"]),
                ((3, 2, 6), ["--attention-backend", "fa3"] if mla else
                 ["--attention-backend", "flashinfer", "--page-size", "16"]),
                ((3, 4, 8), ["--disable-radix-cache"]),
                ((3, 4, 8), ["--chunked-prefill-size", "16", "--tp", "2"]),
                ((3, 4, 8), ["--sglang-version", "0.5.12"]),
                ((1, 3, 4), ["--disable-overlap-schedule"]),
            ), i, 4):
                with self.subTest(name=name, tree=tree, extra=" ".join(extra)):
                    self.check(name, tree, *extra, plain=plain)

    def test_starved_pools(self):
        """Passes evict, requests are retracted and start again: with every head, and with every tree."""
        chain, pair, wide = (3, 1, 4), (3, 2, 6), (3, 4, 8)
        retractions, evicted = dict.fromkeys((*NAMES, chain, pair, wide), 0), 0
        for name in NAMES:
            plain = self.plain(name)
            trace = self.write_trace(self.prompts(name), 40)
            for tree, pools, more in ((chain, (136, 144, 152, 176), []), (wide, (160, 192), []),
                                      (pair, (400, 512), ["--page-size", "16", "--attention-backend", "flashinfer"])):
                if name == "nextn" and tree == pair:
                    continue  # no tree on pages of MLA
                for pool in share(pools, 1, 2):
                    words = ["--max-total-tokens", str(pool), "--schedule-conservativeness", "0", *more]
                    with self.subTest(name=name, tree=tree, pool=pool):
                        self.check(name, tree, *words, plain=plain)
                        report = self.run_report(name, trace, *tree_flags(*tree), *words)
                        evicted += report["evicted_tokens"]
                        for what in (name, tree):
                            retractions[what] += report["retractions"]
        self.assertGreater(evicted, 0)
        for what, count in retractions.items():
            self.assertGreater(count, 0, what)

    def test_under_mpirun(self):
        for name in NAMES:
            with self.subTest(name=name):
                self.check(name, (3, 2, 6), "--tp", "8", processes=4)

    def test_a_layer_of_seeded_weights(self):
        """GLM's layer for the next token, of which there is no checkpoint here."""
        glm = ["glm4-moe", self.prompts("eagle"), "--load-format", "dummy"]
        plain = self.generate(*glm, new_tokens=24)
        for tree in ((3, 1, 4), (3, 2, 6)):
            rows = self.generate(*glm, "--tp", "2", "--speculative-algorithm", "NEXTN", *tree_flags(*tree), new_tokens=24)
            self.assertEqual(rows, plain)

    def test_sampled_tokens_are_the_same_too(self):
        hot = ["--temperature", "0.7", "--top-k", "20", "--sampling-seed", "5"]
        plain = self.generate(self.target("eagle"), self.prompts("eagle"), *hot, new_tokens=24)
        rows = self.generate(self.target("eagle"), self.prompts("eagle"), *hot, *self.draft_flags("eagle"),
                             *tree_flags(3, 4, 8), new_tokens=24)
        self.assertEqual(rows, plain)


class Refused(Draft):
    def copy(self, name, **changes):
        at = self.path("head")
        shutil.rmtree(at, ignore_errors=True)
        shutil.copytree(os.path.join(HEADS, name), at)
        with open(os.path.join(at, "config.json")) as file:
            config = json.load(file)
        with open(os.path.join(at, "config.json"), "w") as file:
            json.dump({**config, **changes}, file)
        return at

    def words(self, name, head, *extra):
        return ["generate", "--model-path", self.target(name), "--prompt-ids", "1", "--speculative-algorithm",
                head_reference(name)["algorithm"], "--speculative-draft-model-path", head, *tree_flags(3, 1, 4), *extra]

    def test_heads_that_do_not_fit(self):
        flag = "--speculative-draft-model-path"
        self.assert_refused(self.words("eagle", self.copy("eagle", vocab_size=99)), flag, "needs the same")
        self.assert_refused(self.words("eagle3", self.copy("eagle3", norm_before_fc=True)), flag, "norm_before_fc")
        self.assert_refused(self.words("eagle3", self.copy("eagle3", num_hidden_layers=2)), flag, "of one layer")
        none = {"eagle_aux_hidden_state_layer_ids": [77]}
        self.assert_refused(self.words("eagle3", self.copy("eagle3", eagle_config=none)), flag, "its 7 layers")
        one = {"eagle_aux_hidden_state_layer_ids": [1]}
        self.assert_refused(self.words("eagle3", self.copy("eagle3", eagle_config=one)), "fc.weight")
        self.assert_refused(self.words("eagle3", self.copy("eagle3", draft_vocab_size=95)), "lm_head.weight")
        plain = os.path.join(numeric.MODELS, "deepseek-v3")
        self.assert_refused(["generate", "--model-path", plain, "--prompt-ids", "1", "--speculative-algorithm", "NEXTN",
                             *tree_flags(3, 1, 4)], "model.layers.2.")


if __name__ == "__main__":
    numeric.TPSIM = os.path.abspath(sys.argv.pop(1))
    numeric.MODELS = os.path.abspath(sys.argv.pop(1))
    HEADS = os.path.join(os.path.dirname(numeric.MODELS), "heads")
    unittest.main()
