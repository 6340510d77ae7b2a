#!/usr/bin/env python3
"""Prefill and decode on servers of their own.

Usage: disaggregation_test.py TPSIM [CLASS ...]
"""

import csv
import json
import os

from command_line import CommandLine, main


class Disaggregation(CommandLine):
    LOAD = ("--model-path", "llama-3.1-8b", "--hardware", "h200-sxm", "--dataset-name", "random", "--num-prompts", "80",
            "--random-input-len", "900", "--random-output-len", "60", "--request-rate", "20", "--check-invariants")
    PAIR = ("--pd-disaggregation",)
    HEAD = ("--speculative-algorithm", "EAGLE3", "--speculative-draft-model-path", "lmsys/sglang-EAGLE3-LLaMA3.1-Instruct-8B",
            "--speculative-accept-rates", "0.8", "--speculative-num-steps", "3", "--speculative-eagle-topk", "1",
            "--speculative-num-draft-tokens", "4")

    def test_requests_name_both_servers(self):
        report, requests, text = self.served(*self.LOAD, *self.PAIR, "--prefill", "2", "--decode", "3", "--decode-policy", "round_robin")
        self.assertEqual([row["role"] for row in report["replicas"]], ["prefill"] * 2 + ["decode"] * 3)
        for row in report["replicas"]:
            mine = [r for r in requests if int(r[row["role"] + "_replica"]) == row["replica"]]
            self.assertEqual(row["requests"], len(mine))
        self.assertEqual(sum(row["input_tokens"] for row in report["replicas"]), report["total_input_tokens"])
        self.assertEqual(sum(row["output_tokens"] for row in report["replicas"]), report["total_output_tokens"])
        self.assertEqual(len(report["ranks"]), 5)
        self.assertEqual(report["server_args"]["kv_link"], "nvlink")
        self.assertIn("prefilled", text)

    def test_graphs_of_releases(self):
        """Neither side of 0.5.12 captures prefills; in 0.5.23 prefill servers do."""
        for release, eager in (("0.5.12", "true"), ("0.5.23", "false")):
            report, _, _ = self.served(*self.LOAD, *self.PAIR, "--sglang-version", release)
            self.assertEqual(report["server_args"]["disable_prefill_cuda_graph"], eager)
            self.assertEqual(report["replayed_fraction"], 1)

    def test_a_slow_link_delays_first_tokens_alone(self):
        fast, _, _ = self.served(*self.LOAD, *self.PAIR)
        slow, _, _ = self.served(*self.LOAD, *self.PAIR, "--kv-link", "network", "--kv-link-bandwidth", "5")
        self.assertGreater(slow["mean_ttft_ms"], fast["mean_ttft_ms"] + 5)
        self.assertLess(abs(slow["mean_tpot_ms"] / fast["mean_tpot_ms"] - 1), 0.05)

    def test_decode_servers_of_their_own_kind(self):
        report, _, _ = self.served(*self.LOAD, *self.PAIR, "--decode-args=--attention-backend flashinfer --max-total-tokens 9000")
        self.assertEqual(report["server_args"]["decode_attention_backend"], "flashinfer")
        self.assertEqual(report["server_args"]["decode_max_total_num_tokens"], "9000")
        report, _, _ = self.served(*self.LOAD, *self.PAIR, "--tp", "2", "--decode-args=--tp 4")
        self.assertEqual(len(report["ranks"]), 6)

    def test_decode_servers_that_keep_prefixes(self):
        """What they have is not sent again: with a link so slow that it counts, first tokens of what follows come sooner."""
        with open(os.path.join(self.folder, "turns.jsonl"), "w") as file:
            for turn in range(12):
                file.write(json.dumps({"arrival_time": 2 * turn, "prompt": [[7 + 100000 * (turn % 2), 4000 + 200 * turn]],
                                       "max_new_tokens": 20}) + "\n")
        load = (*self.LOAD[:4], "--trace", "turns.jsonl", "--check-invariants", *self.PAIR, "--kv-link", "network",
                "--kv-link-bandwidth", "1")
        flag = "--disaggregation-decode-enable-radix-cache"
        plain, _, _ = self.served(*load)
        kept, requests, _ = self.served(*load, flag)
        self.assertEqual(kept["server_args"]["disaggregation_decode_enable_radix_cache"], "true")
        self.assertNotIn("disaggregation_decode_enable_radix_cache", plain["server_args"])
        self.assertEqual(kept["cache_hit_rate"], plain["cache_hit_rate"])  # the prefill server has as much
        self.assertLess(kept["mean_ttft_ms"], plain["mean_ttft_ms"] / 2)
        alike, _, _ = self.served(*load, f"--decode-args={flag}")
        self.assertEqual(alike["mean_ttft_ms"], kept["mean_ttft_ms"])
        self.assert_refused(["run", *self.LOAD, flag], f"{flag}: needs --pd-disaggregation")

    def test_a_pool_that_retracts(self):
        self.LOAD = tuple("600" if word == "60" else word for word in self.LOAD)
        report, requests, _ = self.served(*self.LOAD, *self.PAIR, "--num-reserved-decode-tokens", "16",
                                          "--decode-args=--max-total-tokens 5000 --cuda-graph-max-bs 64")
        self.assertGreater(report["retractions"], 0)
        self.assertEqual(report["completed"], len(requests))

    def test_a_pool_too_small_for_some_requests(self):
        """They are counted, and one sentence says whose pool it is and what would do."""
        done = self.tpsim("run", *self.LOAD, *self.PAIR, "--decode-args=--max-total-tokens 1100", "--report-dir", "small")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, "Refused requests: +[0-9]+")
        said = [line for line in done.stderr.splitlines() if "is refused" in line]
        self.assertEqual(len(said), 1, done.stderr)
        self.assertRegex(said[0], r"request \d+ of \d+ prompt tokens is refused by decode server 1, whose KV pool has 1100 tokens")
        self.assertIn("--max-total-tokens", said[0])

    def test_heads_draft_on_the_decode_servers(self):
        """Prefills compute the head's KV, too, and send it; decodes keep several tokens of a step."""
        plain, _, _ = self.served(*self.LOAD, *self.PAIR)
        drafts, _, _ = self.served(*self.LOAD, *self.PAIR, *self.HEAD)
        self.assertLess(drafts["mean_tpot_ms"], 0.7 * plain["mean_tpot_ms"])
        self.assertGreater(drafts["mean_ttft_ms"], plain["mean_ttft_ms"])
        self.assertEqual(drafts["total_output_tokens"], plain["total_output_tokens"])

    MLA = ("--model-path", "deepseek-v2-lite", *LOAD[2:], "--tp", "4")
    DP = ("--dp-size", "4", "--enable-dp-attention")

    def test_data_parallel_attention_on_either_side(self):
        plain, _, _ = self.served(*self.MLA, *self.PAIR)
        both, _, _ = self.served(*self.MLA, *self.DP, *self.PAIR, "--prefill", "2")
        one, _, _ = self.served(*self.MLA, *self.PAIR, "--decode-args=" + " ".join(self.DP))
        for report in (both, one):
            self.assertEqual(report["completed"], 80)
            self.assertEqual(report["total_output_tokens"], plain["total_output_tokens"])
        self.assertEqual(len(both["ranks"]), 12)
        self.assertEqual(both["server_args"]["load_balance_method"], "follow_bootstrap_room")
        self.assert_refused(["run", *self.MLA, *self.DP, "--load-balance-method", "follow_bootstrap_room"],
                            "is of servers that prefill or decode alone")

    def test_a_host_tier_of_prefill_servers(self):
        """What one prefill server's pool has lost its host memory has; the decode server's report says so of each request."""
        trace = os.path.join(self.folder, "trace.jsonl")
        with open(trace, "w") as file:
            for number in range(24):
                block = 100000 * (number % 6)
                file.write(json.dumps({"arrival_time": number, "prompt": [[block, 3000]], "max_new_tokens": 5}) + "\n")
        words = ("--model-path", "llama-3.1-8b", "--hardware", "h200-sxm", "--trace", trace, "--check-invariants", *self.PAIR,
                 "--max-total-tokens", "8000")
        without, _, _ = self.served(*words)
        report, requests, _ = self.served(*words, "--enable-hierarchical-cache", "--hicache-ratio", "4")
        self.assertEqual(without["cache_hit_rate"], 0)
        self.assertGreater(report["cached_host_tokens"], 40000)
        self.assertEqual(report["cached_host_tokens"], sum(int(r["cached_host"]) for r in requests))
        self.assertLess(report["mean_ttft_ms"], without["mean_ttft_ms"])
        report, requests, _ = self.served(*words, "--enable-hierarchical-cache", "--hicache-ratio", "1.2", "--hicache-storage-backend",
                                          "file", "--hicache-storage-prefetch-policy", "wait_complete")
        self.assertGreater(report["cached_storage_tokens"], 20000)

    def test_real_pairs_did_the_same(self):
        """Loads of real pairs: the same requests wait and are retracted, and times are near."""
        here = os.path.dirname(os.path.abspath(__file__))
        with open(os.path.join(here, "..", "..", "references", "disaggregation", "pairs.json")) as file:
            recorded = json.load(file)
        for pair in recorded["pairs"]:
            folder = os.path.join(self.folder, "pair")
            done = self.tpsim("run", *recorded["common"].split(), *pair["flags"].split(),
                              f"--decode-args={pair['decode_args']}", "--report-dir", folder)
            self.assertEqual(done.returncode, 0, done.stderr)
            with open(os.path.join(folder, "report.json")) as file:
                report = json.load(file)
            for name, measured, most in (("mean_ttft_ms", pair["ttft_ms"], 0.15), ("mean_tpot_ms", pair["tpot_ms"], 0.05),
                                         ("duration", pair["duration_s"], 0.06)):
                self.assertLess(abs(report[name] / measured - 1), most, (name, pair))
            self.assertEqual(report["retractions"], pair["retractions"], pair)
            if "waiting" in pair:
                with open(os.path.join(folder, "steps.csv")) as file:
                    steps = [step for step in csv.DictReader(file) if step["replica"] == "1"]
                self.assertEqual(max(int(step["running"]) for step in steps), pair["most_running"])
                full = next(step for step in steps if int(step["decode_requests"]) == pair["most_running"])
                self.assertEqual(int(full["waiting"]), pair["waiting"])

    def test_compared(self):
        folder = os.path.join(self.folder, "out")
        done = self.tpsim("compare", *self.LOAD, *self.PAIR, "--attention-backends", "fa3,flashinfer", "--report-dir", folder)
        self.assertEqual(done.returncode, 0, done.stderr)
        with open(os.path.join(folder, "report.json")) as file:
            self.assertEqual([len(run["replicas"]) for run in json.load(file)["runs"]], [2, 2])
        done = self.tpsim("compare", *self.LOAD, *self.PAIR, "--attention-backends", "fa3", "--prefill", "1,2", "--decode", "1,2",
                          "--report-dir", folder)
        self.assertEqual(done.returncode, 0, done.stderr)
        with open(os.path.join(folder, "report.json")) as file:
            self.assertEqual([len(run["replicas"]) for run in json.load(file)["runs"]], [2, 3, 3, 4])

    def test_a_switch_is_an_argument_of_decode_servers(self):
        for words in (["--decode-args", "--disable-overlap-schedule"], ["--decode-args=--disable-overlap-schedule"]):
            report, _, _ = self.served(*self.LOAD, *self.PAIR, *words)
            self.assertEqual(report["server_args"]["decode_args"], "--disable-overlap-schedule")

    def test_refusals(self):
        for words, sentence in (
                (("--decode", "2"), "--decode: needs --pd-disaggregation"),
                (("--decode-args=--tp 2 --page-size 64",), "--decode-args: needs --pd-disaggregation"),
                ((*self.PAIR, "--decode-args=--page-size 64 --tp 1"), "--page-size: prefill servers have pages of 1"),
                ((*self.PAIR, "--decode-args=--kv-cache-dtype fp8_e4m3 --tp 1"), "--kv-cache-dtype: prefill and decode"),
                ((*self.PAIR, "--decode-args=--model-path tinyllama-1.1b --tp 1"), "--decode-args: decode servers have"),
                ((*self.PAIR, "--decode-args=--frobnicate 3"), "--decode-args: --frobnicate"),
                ((*self.PAIR, "--decode-args=--max-total-tokens 300 --tp 1"), "--num-reserved-decode-tokens 512: leaves no"),
                ((*self.PAIR, "--kv-link-bandwidth", "0"), "--kv-link-bandwidth 0"),
                ((*self.PAIR, "--kv-link", "pcie"), "--kv-link pcie: the profile of h200-sxm"),
                ((*self.PAIR, "--decode", "0"), "--decode 0"),
                ((*self.PAIR, "--decode-policy", "bucket"), "--decode-policy bucket: is a policy of servers that prefill alone"),
                ((*self.PAIR, "--dp-size", "2"), "--pd-disaggregation: --dp-size"),
                ((*self.PAIR, "--pp-size", "2"), "--pd-disaggregation: --pp-size"),
                ((*self.PAIR, "--checkpoint", "c", "--report-dir", "d"), "--pd-disaggregation: a checkpoint"),
                ((*self.PAIR, "--decode-args=" + " ".join(self.HEAD)), "--speculative-algorithm: prefill and decode servers"),
                ((*self.PAIR, *self.HEAD, "--sglang-version", "0.5.12", "--disable-overlap-schedule"),
                 "--pd-disaggregation: --speculative-algorithm EAGLE3 in spec v1"),
                ((*self.PAIR, "--speculative-algorithm", "NGRAM", "--speculative-accept-rates", "0.5"),
                 "--pd-disaggregation: --speculative-algorithm NGRAM, which has no head"),
                (("--disaggregation-mode", "prefill"), "--disaggregation-mode: one command has both sides here")):
            self.assert_refused(["run", *self.LOAD, *words], sentence)
        self.assert_refused(["plan", "--gpus", "4", *self.LOAD[:-1], *self.PAIR], "--pd-disaggregation: `tpsim plan` finds that out")


if __name__ == "__main__":
    main()
