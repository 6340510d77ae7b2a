#!/usr/bin/env python3
"""`tpsim validate`: measurements that tpsim made itself are predicted exactly, real ones to their last row, and what is
malformed is refused with its line.

Usage: validate_test.py TPSIM [CLASS ...]
"""

import csv
import gzip
import json
import os
import shutil

from command_line import CommandLine, main

MEASURED = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../calibration/measured")
HEADER = ("server,model,tp,prefill_attention_backend,decode_attention_backend,kv_cache_dtype,load,request,sent_s,"
          "first_token_s,last_token_s,input_tokens,output_tokens,cached_tokens,arrival_s,other_flags\n")
FIGURES = ("ttft_ms", "tpot_ms", "e2e_ms", "duration_s")


class Validate(CommandLine):
    def measure(self, server, load, flags, other=""):
        """Rows of requests.csv and of batches.csv, of a run of tpsim itself."""
        report = os.path.join(self.folder, "measured")
        shutil.rmtree(report, ignore_errors=True)
        done = self.tpsim("run", "--model-path", "llama-3.1-8b", "--hardware", "h200-sxm", "--sglang-version", "0.5.12",
                          "--attention-backend", "fa3", *flags, *other.split(), "--report-dir", report)
        self.assertEqual(done.returncode, 0, done.stderr)
        with open(os.path.join(report, "requests.csv")) as stream:
            requests = "".join(
                f"{server},llama-3.1-8b,1,fa3,fa3,auto,{load},{r['id']},{r['arrival_time']},{r['first_token_time']},"
                f"{r['finish_time']},{r['input_tokens']},{r['output_tokens']},{r['cached_tokens']},,{other}\n"
                for r in csv.DictReader(stream))
        batches, before = "", None
        with open(os.path.join(report, "steps.csv")) as stream:
            for k, s in enumerate(csv.DictReader(stream)):
                end = float(s["start_time"]) + float(s["step_time"])
                if int(s["decode_requests"]):
                    rate = int(s["decode_requests"]) / (end - before) if before is not None else 1
                    batches += (f"{server},{load},{k},decode,,,,{s['decode_requests']},0,0,True,{rate!r},"
                                f"{s['kv_allocated_tokens']},\n")
                    before = end
                else:
                    batches += (f"{server},{load},{k},extend,{s['extend_requests']},{s['extend_tokens']},"
                                f"{s['cached_tokens']},{s['running']},0,0,True,,,\n")
        return requests, batches

    def measurements(self, in_flight=4):
        """A folder with two loads of two servers each, one of them with other flags."""
        closed = f"closed:256:32:{in_flight}:12"
        azure = os.path.join(self.folder, "azure.csv")
        with open(azure, "w") as out:
            out.write("TIMESTAMP,ContextTokens,GeneratedTokens\n")
            for i in range(40):
                out.write(f"2023-11-16 18:15:{i // 4:02d}.{i % 4}100000,{300 + 37 * i},{20 + i % 30}\n")
        folder = os.path.join(self.folder, "serving")
        os.makedirs(folder)
        all_requests, all_batches, servers = HEADER, "", []
        for server, other in (("one", ""), ("eager", "--disable-cuda-graph --chunked-prefill-size 512")):
            for load, flags in (  # a server compiles what it meets first
                    (closed, ("--dataset-name", "random", "--random-input-len", "256", "--random-output-len",
                                            "32", "--random-range-ratio", "1", "--max-concurrency", str(in_flight), "--num-prompts",
                                            "12", "--front-end", "kit", "--served-before", "warmup")),
                    ("azure:0:60:1", ("--trace", azure, "--front-end", "ids", "--served-before",
                                      f"warmup,{closed}"))):
                requests, batches = self.measure(server, load, flags, other)
                all_requests += requests
                all_batches += batches
            servers.append({"server": server, "version": "0.5.12", "page_size": 1, "tp_size": 1})
        with open(os.path.join(folder, "requests.csv"), "w") as out:
            out.write(all_requests)
        with gzip.open(os.path.join(folder, "batches.csv.gz"), "wt") as out:
            out.write("server,load,step,mode,new_seqs,new_tokens,cached_tokens,running,queued,token_usage,cuda_graph,"
                      "gen_tokens_per_s,kv_tokens,accept_len\n" + all_batches)
        with open(os.path.join(folder, "servers.jsonl"), "w") as out:
            out.writelines(json.dumps(server) + "\n" for server in servers)
        return os.path.join(folder, "requests.csv")

    def validated(self, *words, processes=None, timeout=60):
        report = os.path.join(self.folder, "report")
        shutil.rmtree(report, ignore_errors=True)
        done = self.tpsim("validate", *words, "--report-dir", report, processes=processes, timeout=timeout)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(sorted(os.listdir(report)), ["validation.html", "validation.json"])
        with open(os.path.join(report, "validation.json")) as stream:
            return json.load(stream), done.stdout

    def test_what_tpsim_measured_it_predicts(self):
        file = self.measurements()
        result, printed = self.validated("--measurements", file)
        self.assertEqual(result["not_asked"], [])
        self.assertEqual([(r["server"], r["load"]) for r in result["rows"]],
                         [(s, l) for s in ("one", "eager") for l in ("closed:256:32:4:12", "azure:0:60:1")])
        for row in result["rows"]:
            for name in FIGURES:
                figure = row[name]
                self.assertAlmostEqual(figure["predicted"] / figure["measured"], 1, delta=1e-6, msg=(row["server"], name))
            self.assertIn("tpsim run --model-path llama-3.1-8b", row["command"])
        whole = next(g for g in result["groups"] if g["by"] == "all")
        for name in FIGURES:
            self.assertEqual(whole[name]["count"], 4)
            self.assertLess(whole[name]["p90"], 1e-6)
        decode = next(s for s in result["steps"] if (s["server"], s["mode"]) == ("one", "decode"))
        self.assertGreater(decode["steps"], 100)
        self.assertEqual(decode["without_counterpart"], 0)
        self.assertLess(decode["error"]["median"], 1e-3)
        self.assertGreater(result["pairs"]["count"], 0)
        self.assertEqual(result["pairs"]["right"], result["pairs"]["count"])
        self.assertIn("closed:256:32:4:12", printed)

    def test_processes_and_jobs_change_nothing(self):
        file = self.measurements()
        first, _ = self.validated("--measurements", file, "--jobs", "1")
        for words, processes in ((("--jobs", "3"), None), ((), 2)):
            again, _ = self.validated("--measurements", file, *words, processes=processes)
            self.assertEqual(again, first)

    def test_each_server_is_left_out(self):
        """Hosts that are as the profile says are found by the other server's loads; any number of processes says so."""
        # One at a time: beside others, prefills of one size wait for the host more or less, and batch logs tell them
        # apart by size alone.
        file = self.measurements(in_flight=1)
        plain, _ = self.validated("--measurements", file)
        result, printed = self.validated("--measurements", file, "--leave-one-out", "server")
        self.assertEqual([f["left_out"] for f in result["leave_one_out"]["fits"]], ["", "eager", "one"])
        self.assertIn("with each server left out of the fit", printed)
        self.assertIn("kernel_launch_seconds", printed)
        for row, before in zip(result["rows"], plain["rows"]):
            for name in FIGURES:
                self.assertEqual(row[name]["predicted"], before[name]["predicted"])
                self.assertAlmostEqual(row[name]["refitted"] / row[name]["measured"], 1, delta=0.02)
                self.assertIn("left_out", row[name])
        for group in result["groups"]:
            if group["by"] in ("all", "server"):
                self.assertEqual(group["tpot_ms"]["left_out"]["count"], group["tpot_ms"]["count"])
        again, _ = self.validated("--measurements", file, "--leave-one-out", "server", processes=2)
        self.assertEqual(again, result)
        alone, printed = self.validated("--measurements", file, "--leave-one-out", "model")
        self.assertEqual(alone["leave_one_out"], {"by": "model", "fits": []})
        self.assertIn("No model could be left out", printed)

    def test_residuals_are_written(self):
        file = self.measurements()
        path = os.path.join(self.folder, "residuals.json")
        self.validated("--measurements", file, "--write-residuals", path)
        with open(path) as stream:
            table = json.load(stream)
        self.assertEqual(table["sources"], ["serving/requests.csv"])
        self.assertEqual(len(table["rows"]), 4)
        for row in (dict(zip(table["columns"], row)) for row in table["rows"]):
            self.assertEqual((row["hardware"], row["family"], row["weights"], row["backend"]),
                             ("h200-sxm", "Llama", "16bit",
                              "fa3 --disable-cuda-graph" if row["server"] == "eager" else "fa3"))
            self.assertEqual(row["arrivals"], "closed" if row["load"].startswith("closed") else "open")
            for figure in ("ttft", "tpot", "latency", "duration"):
                self.assertAlmostEqual(row[figure], 1, delta=1e-4)
        before = self.read(path)
        self.validated("--measurements", file, "--write-residuals", path, processes=2)
        self.assertEqual(self.read(path), before)

    def test_what_cannot_be_asked_is_said(self):
        path = self.write("requests.csv", HEADER +
                          "a,no-such-model,1,fa3,fa3,auto,closed:64:8:1:1,0,0,0.1,0.2,64,8,0,,\n"
                          "b,llama-3.1-8b,1,fa3,fa3,auto,mooncake:0:1:1,0,0,0.1,0.2,64,8,0,,\n"
                          "c,llama-3.1-8b,1,fa3,fa3,auto,closed:64:8:1:1,0,0,0.1,0.2,64,8,0,,--no-such-flag\n"
                          "d,llama-3.1-8b,1,fa3,fa3,auto,closed:64:8:1:1,0,0,0.1,0.2,64,8,0,,\n")
        result, printed = self.validated("--measurements", path, "--traces", self.folder)
        self.assertEqual([r["server"] for r in result["rows"]], ["d"])
        reasons = {r["server"]: r["reason"] for r in result["not_asked"]}
        self.assertIn("no-such-model", reasons["a"])
        self.assertIn("--traces", reasons["b"])
        self.assertIn("--no-such-flag", reasons["c"])
        for reason in reasons.values():
            self.assertIn(reason, printed)

    def test_refusals(self):
        good = HEADER + "a,llama-3.1-8b,1,fa3,fa3,auto,closed:64:8:1:1,0,0,0.1,0.2,64,8,0,,\n"
        report = os.path.join(self.folder, "report")
        file = self.write("requests.csv", good)
        for words, parts in (
                (["--measurements", "nowhere.csv"], ["--measurements nowhere.csv", "no such file"]),
                (["--measurements", self.write("bad.csv", good + "a,b\n")], ["bad.csv:3", "columns"]),
                (["--measurements", self.write("other.csv", "x,y\n1,2\n")], ["other.csv:1", "format"]),
                (["--measurements", file, "--hardware", "h201"], ["h201"]),
                (["--measurements", file, "--traces", "nowhere"], ["--traces nowhere"]),
                (["--measurements", file, "--jobs", "0"], ["--jobs 0"]),
                (["--measurements", file, "--leave-one-out", "rack"], ["--leave-one-out rack", "server"]),
                (["--measurements", file, "--page-size", "4"], ["--page-size"])):
            self.assert_refused(["validate", *words, "--report-dir", report], *parts)

    def test_without_arguments_all_servers_of_the_repository(self):
        result, printed = self.validated(timeout=200)
        self.assertGreater(len({row["server"] for row in result["rows"]}), 30)
        whole = next(g for g in result["groups"] if g["by"] == "all")
        self.assertLess(whole["tpot_ms"]["median"], 0.05)
        for reason in {row["reason"].split(":")[0] for row in result["not_asked"]}:
            self.assertIn(reason, printed)

    def test_help(self):
        done = self.tpsim("validate", "--help")
        self.assertEqual(done.returncode, 0)
        for flag in ("--measurements", "--report-dir", "--traces", "--jobs", "--leave-one-out"):
            self.assertIn(flag, done.stdout)

    def test_real_servers(self):
        """Every row of our own servers is asked; what is far off is a defect of this command, not of a price."""
        result, _ = self.validated("--measurements", os.path.join(MEASURED, "h200-sxm_servers", "first", "requests.csv.gz"),
                                   timeout=200)
        self.assertEqual(result["not_asked"], [])
        self.assertEqual(len(result["rows"]), 32)
        whole = next(g for g in result["groups"] if g["by"] == "all")
        self.assertLess(whole["tpot_ms"]["mean"], 0.1)
        self.assertLess(whole["duration_s"]["mean"], 0.1)
        self.assertEqual(len(result["pools"]), 9)
        answered = {b["like"] for b in result["bands"]}
        self.assertLessEqual({"answered", "without its family", "without its GPU"}, answered)
        figures = [row[name] for row in result["rows"] for name in ("ttft_ms", "tpot_ms") if name in row]
        self.assertTrue(all(figure["low"] < figure["predicted"] < figure["high"] for figure in figures))
        inside = sum(figure["low"] <= figure["measured"] <= figure["high"] for figure in figures) / len(figures)
        self.assertGreater(inside, 0.65)
        bands = {b["figure"]: b for b in result["bands"] if b["like"] == "all"}
        for figure in ("mean_ttft_ms", "mean_tpot_ms", "mean_e2e_latency_ms", "duration"):
            self.assertGreaterEqual(bands[figure]["count"], 20)
            self.assertAlmostEqual(bands[figure]["inside"] / bands[figure]["count"], 0.8, delta=0.15)
        self.assertGreater(sum(s["steps"] for s in result["steps"] if s["server"] == "all"), 30000)


if __name__ == "__main__":
    main()
