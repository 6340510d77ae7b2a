#!/usr/bin/env python3
"""`tpsim plan`: its answer is that of trying all, and its commands are launch lines that `tpsim run` takes.

Usage: plan_test.py TPSIM [CLASS ...]
"""

import itertools
import json
import os
import re
import shlex
import shutil
import subprocess
import unittest

try:
    import yaml
except ImportError:  # the unit test parses them, too
    yaml = None

from command_line import CommandLine, main
from plan_questions import run_words

LOAD = ["--dataset-name", "random", "--num-prompts", "80", "--random-input-len", "2048", "--random-output-len", "64",
        "--random-range-ratio", "0.2", "--request-rate", "20"]
LEVELS = ["--slo", "ttft:1000", "tpot:30"]


class Plan(CommandLine):
    def plan(self, *words, model="llama-3.1-8b", gpus="2", load=(*LOAD, *LEVELS), hardware="h200-sxm",
             processes=None):
        report = os.path.join(self.folder, "plan")
        done = self.tpsim("plan", "--model-path", model, "--hardware", hardware, "--gpus", gpus, *load, "--report-dir",
                          report, *words, timeout=200, processes=processes)
        self.assertEqual(done.returncode, 0, done.stderr)
        with open(os.path.join(report, "plan.json")) as file:
            return json.load(file), done

    def run_of(self, command, load, name="one"):
        """The report of `tpsim run` with a pasted launch line."""
        report = os.path.join(self.folder, name)
        done = self.tpsim("run", *shlex.split(command), "--hardware", "h200-sxm", *load, "--report-dir", report)
        self.assertEqual(done.returncode, 0, done.stderr)
        return self.result(report)

    def test_commands_are_launch_lines_with_the_figures_that_were_printed(self):
        plan, done = self.plan("--attention-backends", "fa3,flashinfer+fa3", "--pd-disaggregation=false")
        self.assertGreaterEqual(len(plan["best"]), 5)
        for best in plan["best"][:6]:
            self.assertEqual(len(best["launch"]), 1)
            self.assertIn(f" {best['launch'][0]}\n", done.stdout + "\n ".join(["", *best["launch"], ""]))
            again = self.run_of(best["launch"][0], (*LOAD, *LEVELS))
            for name, value in best["figures"].items():
                self.assertEqual(again[name], value, f"{name} of {best['launch'][0]}")
            self.assertEqual(again["error_bands"]["bands"], best["bands"])
        self.assertIn(f"\n  1 {plan['best'][0]['launch'][0]}\n", done.stdout)
        self.assertIn("bound by", done.stdout)
        self.assertEqual(sorted(os.listdir(os.path.join(self.folder, "plan"))),
                         ["plan.json", "report.html", "report.json", "sweep.csv"])

    def test_prefill_and_decode_on_servers_of_their_own(self):
        """Beside the best replicas; `tpsim run` has the same figures of them, and what plan was told is held to."""
        words = ("--attention-backends", "flashinfer+fa3", "--schedule-policy", "fcfs", "--chunked-prefill-size", "8192")
        plan, done = self.plan(*words, "--enable-mixed-chunk=false", gpus="4")
        self.assertNotIn("--enable-mixed-chunk", done.stdout)
        pairs = [best for best in plan["best"] if "pd_disaggregation" in best["flags"]]
        self.assertEqual({best["flags"]["tp_size"] for best in pairs}, {"1", "2"})
        self.assertEqual({best["flags"].get("speculative_algorithm") for best in pairs}, {None, "EAGLE3"})
        for best in pairs:
            servers = int(best["flags"]["prefill"]) + int(best["flags"]["decode"])
            self.assertEqual((best["gpus"], servers * int(best["flags"]["tp_size"])), (4, 4))
            modes = [" --disaggregation-mode " in command for command in best["launch"]]
            self.assertEqual(modes, [True] * servers + [False])
            drafts = [" --speculative-algorithm " in command for command in best["launch"]]
            self.assertEqual(drafts, ["speculative_algorithm" in best["flags"]] * servers + [False])
            report = os.path.join(self.folder, "pairs")
            again = self.tpsim("run", *run_words(best, words[2:]), "--hardware", "h200-sxm", *LOAD, *LEVELS, "--report-dir",
                               report)
            self.assertEqual(again.returncode, 0, again.stderr)
            run = self.result(report)
            self.assertEqual({name: run[name] for name in best["figures"]}, best["figures"])
        plan, _ = self.plan(*words, "--pd-disaggregation=false", gpus="4")
        self.assertFalse([best for best in plan["best"] if "pd_disaggregation" in best["flags"]])

    def test_the_answer_is_that_of_trying_all(self):
        """A space that is small enough to try, and a load that is long enough to be begun with a part of it."""
        trace = os.path.join(self.folder, "t.jsonl")
        made = self.tpsim("trace", "generate", "--output", trace, "--num-conversations", "500", "--seed", "3")
        self.assertEqual(made.returncode, 0, made.stderr)
        load = ["--trace", trace, "--slo", "ttft:500", "tpot:12"]
        plan, _ = self.plan("--attention-backends", "fa3,triton", "--chunked-prefill-size", "1024,8192",
                            "--pd-disaggregation=false", "--no-speculation", load=load)
        self.assertGreater(len(plan["hardware"][0]["searched"]["rounds"]), 1)
        tried = []
        layouts = [["--tp-size", "2"], ["--tp-size", "1", "--pp-size", "2"],
                   ["--tp-size", "1", "--dp-size", "2", "--router-policy", "cache_aware"],
                   ["--tp-size", "1", "--dp-size", "2", "--router-policy", "round_robin"]]
        choices = itertools.product(layouts, (["fa3"], ["triton"]), ("1024", "8192"), ([], ["--enable-mixed-chunk"]),
                                    ("fcfs", "lpm"))
        for i, (layout, backend, chunk, mixed, policy) in enumerate(choices):
            words = [*layout, "--attention-backend", *backend, "--chunked-prefill-size", chunk, *mixed,
                     "--schedule-policy", policy]
            run = self.run_of(shlex.join(["sglang", "serve", "--model-path", "llama-3.1-8b", *words]), load, f"r{i}")
            tried.append((run["request_goodput"], run["mean_e2e_latency_ms"], words))
        most = max(goodput for goodput, _, _ in tried)
        latency = min(latency for goodput, latency, _ in tried if goodput >= 0.99 * most)
        best = max(plan["best"], key=lambda best: best["figures"]["request_goodput"])
        self.assertEqual(best["figures"]["request_goodput"], most)
        proposed = plan["best"][0]["figures"]
        self.assertGreaterEqual(proposed["request_goodput"], 0.97 * most)
        self.assertLessEqual(proposed["mean_e2e_latency_ms"], 1.03 * latency)

    def test_the_highest_rate_is_that_of_trying_all(self):
        trace = os.path.join(self.folder, "t.jsonl")
        made = self.tpsim("trace", "generate", "--output", trace, "--num-conversations", "200", "--seed", "3")
        self.assertEqual(made.returncode, 0, made.stderr)
        load = ["--trace", trace, "--slo", "ttft:500", "tpot:12", "--slo-share", "0.95", "--max-goodput-rate"]
        space = ["--attention-backends", "fa3", "--schedule-policy", "lpm", "--chunked-prefill-size", "1024,8192",
                 "--pp-size", "1"]
        plan, planned = self.plan(*space, "--pd-disaggregation=false", "--no-speculation", load=load)
        searched = plan["hardware"][0]["searched"]
        self.assertGreater(len(searched["rounds"]), 1)
        self.assertGreater(searched["stopped"], 0)
        rates = []
        for layout in (["--tp-size", "2"], ["--dp-size", "2", "--router-policy", "cache_aware,round_robin"]):
            report = os.path.join(self.folder, "all")
            done = self.tpsim("compare", "--model-path", "llama-3.1-8b", "--hardware", "h200-sxm", *layout, *space, *load,
                              "--enable-mixed-chunk=true,false", "--report-dir", report, timeout=200)
            self.assertEqual(done.returncode, 0, done.stderr)
            with open(os.path.join(report, "report.json")) as file:
                rates += [run["max_goodput_rate"] or 0 for run in json.load(file)["runs"]]
            shutil.rmtree(report)
        self.assertEqual(plan["best"][0]["figures"]["max_goodput_rate"], max(rates))
        self.assertRegex(planned.stdout, r"\nmax req/s: all other figures are of the load as given, [^\n]+\n")
        self.assertRegex(planned.stdout, r"\nHolds: [0-9.]+ requests/s keep 95 % of requests within ")

    def test_threads_and_processes_change_nothing(self):
        seen = []
        for jobs, processes in (("1", None), ("3", None), ("1", 1), ("1", 2), ("2", 3)):
            _, done = self.plan("--attention-backends", "fa3,triton", "--schedule-policy", "fcfs", "--jobs", jobs,
                                processes=processes)
            seen.append({name: self.read(os.path.join(self.folder, "plan", name))
                         for name in ("plan.json", "report.json", "sweep.csv")} | {"text": done.stdout})
        self.assertGreater(json.loads(seen[0]["plan.json"])["hardware"][0]["searched"]["twins"], 0)
        for other in seen[1:]:
            self.assertEqual(other, seen[0])

    def test_processes_end_together(self):
        base = ["plan", "--model-path", "llama-3.1-8b", "--hardware", "h200-sxm", "--gpus", "2", *LOAD]
        self.assert_refused([*base, "--tp-size", "3"], "--gpus 2: cannot be shared out", processes=2)
        self.assert_refused([*base, "--write", "/proc/nowhere"], "--write", processes=2)
        self.assert_refused([*base[:2], "llama-3.1-405b", *base[3:]], "none of the ", processes=2)

    def test_the_smallest_number_that_holds(self):
        load = [*LOAD[:-1], "20", "--slo", "ttft:400", "tpot:30"]
        words = ("--attention-backends", "fa3", "--chunked-prefill-size", "8192", "--gpu-hour-cost", "2.5")
        plan, done = self.plan(*words, gpus="1..4", load=load)
        self.assertEqual(plan["gpus"], [1, 2, 4])
        self.assertTrue(plan["best"][0]["holds"], done.stdout)
        self.assertTrue(all(best["bound_by"] for best in plan["best"]), "of more runs than a report keeps the ranks of")
        found = plan["best"][0]["gpus"]
        self.assertEqual({best["gpus"] for best in plan["best"]}, {found})
        self.assertEqual(found, 2)
        self.assertEqual([one["gpus"] for one in plan["hardware"][0]["too_small"]], [1])
        self.assertIn("\n1 GPU: none of ", done.stdout)
        self.assertIn("\nMore than 2 were not tried, for these hold\n", done.stdout)
        # What each number says alone.
        for gpus, holds in (("1", False), ("2", True)):
            alone, _ = self.plan(*words, gpus=gpus, load=load)
            self.assertEqual(alone["best"][0]["holds"], holds)
        self.assertEqual(alone["best"][0], plan["best"][0])
        # Where none holds, the most of them has the answer.
        none, done = self.plan(*words, gpus="1,2", load=[*LOAD[:-1], "40", "--slo", "ttft:20"])
        self.assertEqual((none["best"][0]["gpus"], none["best"][0]["holds"]), (2, False))
        self.assertIn("\nNo setting holds: ", done.stdout)
        figures = plan["best"][0]["figures"]
        self.assertAlmostEqual(figures["cost_per_million_tokens"],
                               found * 2.5 / 3600 / figures["total_throughput"] * 1e6)

    def test_types_of_gpu_beside_each_other(self):
        words = ("--attention-backends", "fa3", "--chunked-prefill-size", "8192")
        names = "h100-sxm,h200-sxm,b200"  # there is no fa3 on the last
        plan, done = self.plan(*words, hardware=names)
        self.assertEqual(done.stderr, "")
        self.assertEqual({best["hardware"] for best in plan["best"]}, {"h100-sxm", "h200-sxm"})
        self.assertEqual([one["name"] for one in plan["hardware"]], [best["hardware"] for best in plan["best"][:2]] + ["b200"])
        self.assertIn(f"b200: no plan: {plan['hardware'][2]['reason']}\n", done.stdout)
        self.assertIn("the most requests/s per GPU", done.stdout)
        for best in plan["best"][:2]:
            self.assertIn(f"\n  {best['hardware']}  {best['launch'][0]}\n", done.stdout)
        # Each is what a plan for that one alone says.
        for one in ("h100-sxm", "h200-sxm"):
            alone, _ = self.plan(*words, hardware=one)
            self.assertEqual(alone["best"], [best for best in plan["best"] if best["hardware"] == one])
        plan, done = self.plan(*words, "--gpu-hour-cost", "2,3.5,8", hardware=names)
        costs = [best["figures"]["cost_per_million_tokens"] for best in plan["best"][:2]]
        self.assertEqual(costs, sorted(costs))
        self.assertEqual(plan["best"][0]["hardware"], "h100-sxm")
        self.assertIn("the lowest cost of a million tokens", done.stdout)
        # Levels that one of them alone keeps.
        tight = [*LOAD, "--slo", "ttft:1000", "tpot:10"]
        plan, done = self.plan(*words, "--gpu-hour-cost", "1,9", "--slo-share", "0.9", "--dp-size", "1",
                               "--no-speculation", hardware="h100-sxm,h200-sxm", load=tight)
        self.assertEqual([best["hardware"] for best in plan["best"] if best["holds"]][0], "h200-sxm")
        self.assertIn("\nh100-sxm: does not hold: ", done.stdout)

    def written(self, *words, **rest):
        folder = os.path.join(self.folder, "written")
        plan, done = self.plan("--attention-backends", "fa3", "--chunked-prefill-size", "8192", "--write", folder, *words, **rest)
        self.assertIn(f"\nWritten to {folder}: launch.sh, ", done.stdout)
        return plan["best"][0]["launch"], folder

    @unittest.skipIf(yaml is None, "there is no module yaml")
    def test_files_that_start_one_server(self):
        launch, folder = self.written("--tp-size", "2")
        words = shlex.split(launch[0]) + ["--host", "0.0.0.0", "--port", "30000"]
        script = os.path.join(folder, "launch.sh")
        self.assertTrue(os.access(script, os.X_OK))
        self.assertEqual(self.read(script).decode().splitlines()[-1], "exec env " + launch[0])
        compose = yaml.safe_load(self.read(os.path.join(folder, "compose.yaml")))
        server = compose["services"]["server"]
        self.assertEqual((server["command"], server["image"]), (words, "lmsysorg/sglang:v0.5.23"))
        self.assertEqual(server["deploy"]["resources"]["reservations"]["devices"],
                         [{"driver": "nvidia", "device_ids": ["0", "1"], "capabilities": ["gpu"]}])
        deployment, service = yaml.safe_load_all(self.read(os.path.join(folder, "kubernetes.yaml")))
        self.assertEqual((deployment["apiVersion"], deployment["kind"], service["kind"]), ("apps/v1", "Deployment", "Service"))
        pod = deployment["spec"]["template"]
        self.assertEqual(pod["spec"]["containers"][0]["command"], words)
        self.assertEqual(pod["spec"]["containers"][0]["resources"], {"limits": {"nvidia.com/gpu": 2}})
        self.assertEqual(pod["metadata"]["labels"], service["spec"]["selector"])
        before = self.read(script)
        self.assert_refused(["plan", "--model-path", "llama-3.1-8b", "--hardware", "h200-sxm", "--gpus", "2", *LOAD, "--write",
                             folder], "--write", "launch.sh already")
        self.assertEqual(self.read(script), before)

    @unittest.skipIf(yaml is None, "there is no module yaml")
    def test_files_that_start_replicas_and_their_router(self):
        launch, folder = self.written("--tp-size", "1", "--dp-size", "2")
        line = shlex.split(launch[0])
        services = yaml.safe_load(self.read(os.path.join(folder, "compose.yaml")))["services"]
        self.assertEqual(list(services), ["server-0", "server-1", "router"])
        policy = line[line.index("--router-policy") + 1]
        listens = ["--host", "0.0.0.0", "--port", "30000"]
        plain = [word for i, word in enumerate(line) if not {"--router-policy", "--dp-size"} & {word, line[i - 1]}]
        plain[2] = "sglang.launch_server"
        self.assertEqual(services["server-1"]["command"], plain + listens)
        self.assertEqual(services["server-1"]["deploy"]["resources"]["reservations"]["devices"][0]["device_ids"], ["1"])
        router = ["python3", "-m", "sglang_router.launch_router", *listens, "--policy", policy, "--worker-urls"]
        self.assertEqual(services["router"]["command"], router + ["http://server-0:30000", "http://server-1:30000"])
        servers, names, routes, front = yaml.safe_load_all(self.read(os.path.join(folder, "kubernetes.yaml")))
        self.assertEqual((servers["kind"], servers["spec"]["replicas"], names["spec"]["clusterIP"]), ("StatefulSet", 2, "None"))
        self.assertEqual(servers["spec"]["serviceName"], names["metadata"]["name"])
        self.assertEqual(servers["spec"]["template"]["spec"]["containers"][0]["command"], plain + listens)
        urls = [f"http://{servers['metadata']['name']}-{i}.{names['metadata']['name']}:30000" for i in range(2)]
        self.assertEqual(routes["spec"]["template"]["spec"]["containers"][0]["command"], router + urls)
        self.assertEqual(front["spec"]["selector"], routes["spec"]["selector"]["matchLabels"])

    def test_what_cannot_be_carried_out_is_counted(self):
        plan, done = self.plan("--attention-backends", "fa3", "--explain", "--chunked-prefill-size", "8192", gpus="16")
        counted = sum(refused["settings"] for refused in plan["hardware"][0]["refused"])
        self.assertGreater(counted, 0)
        self.assertIn(f"{counted} cannot be carried out", done.stdout)
        self.assertRegex(done.stdout, r"\n +\d+  --enable-dp-attention: ")

    def test_a_model_with_experts(self):
        plan, _ = self.plan("--attention-backends", "fa3", "--chunked-prefill-size", "8192", model="deepseek-v3",
                            gpus="8", load=(*LOAD[:-1], "2", *LEVELS))
        flags = {tuple(sorted(best["flags"])) for best in plan["best"]}
        self.assertTrue(any("ep_size" in names for names in flags), flags)
        self.assertTrue(any("attn_dp_size" in names for names in flags), flags)
        for best in plan["best"]:
            if "attn_dp_size" in best["flags"]:
                self.run_of(best["launch"][0], (*LOAD[:-1], "2", *LEVELS))
                break

    def test_speculation_where_a_head_is_known(self):
        """A layer of the model's own, and a head that was published; the answer says what it hangs on, and from where on it
        pays is between two runs of which one is better than the best without a head and one is not."""
        words = ("--attention-backends", "fa3", "--chunked-prefill-size", "8192", "--schedule-policy", "fcfs", "--tp-size")
        load = (*LOAD[:-1], "2", *LEVELS)
        for model, gpus, algorithm, head in (("deepseek-v3", "8", "NEXTN", None),
                                             ("llama-3.1-8b", "1", "EAGLE3", "lmsys/sglang-EAGLE3-LLaMA3.1-Instruct-8B")):
            plan, done = self.plan(*words, gpus, model=model, gpus=gpus, load=load)
            best = plan["best"][0]
            self.assertEqual(best["flags"]["speculative_algorithm"], algorithm)
            self.assertEqual(best["flags"].get("speculative_draft_model_path"), head)
            assumed = best["assumed_acceptance"]
            self.assertIn(f"\n  1 keeps {assumed['kept_tokens']:.2f} tokens of a step, {assumed['of']} ", done.stdout)
            self.assertIn(f"\n    pays from {assumed['pays_from']:.2f} tokens on, against ", done.stdout)
            self.assertTrue(1 < assumed["pays_from"] < assumed["kept_tokens"])
            self.assertNotIn("accept", best["launch"][0])
            run = self.run_of(best["launch"][0], load)
            self.assertEqual({name: run[name] for name in best["figures"]}, best["figures"])
            plain = next(row for row in plan["best"] if "speculative_algorithm" not in row["flags"])
            self.assertNotIn("assumed_acceptance", plain)
            none_right = self.run_of(best["launch"][0] + " --speculative-accept-rates 0", load)
            latency = "mean_e2e_latency_ms"
            self.assertLess(best["figures"][latency], plain["figures"][latency])
            self.assertLess(plain["figures"][latency], none_right[latency])
        without, done = self.plan(*words, "1", "--no-speculation", gpus="1", load=load)
        self.assertIn(plain["figures"], [best["figures"] for best in without["best"]])
        self.assertNotIn("peculati", done.stdout)
        given, _ = self.plan(*words, "1", "--speculative-algorithm", "EAGLE3", "--speculative-draft-model-path", head,
                             "--speculative-accept-rates", "0.5", gpus="1", load=load)
        for best in given["best"]:
            self.assertIn(" --speculative-algorithm EAGLE3 ", best["launch"][0])
            self.assertNotIn("assumed_acceptance", best)

    def test_refusals(self):
        base = ["plan", "--model-path", "llama-3.1-8b", "--hardware", "h200-sxm", *LOAD]
        self.assert_refused(base, "--gpus: is required")
        self.assert_refused([*base, "--gpus", "0"], "--gpus 0")
        self.assert_refused([*base, "--gpus", "8..4"], "--gpus")
        self.assert_refused([*base, "--gpus", "2", "--tp", "3"], "--gpus 2: cannot be shared out")
        self.assert_refused([*base, "--gpus", "2", "--slo-share", "0.9"], "--slo")
        self.assert_refused([*base, "--gpus", "2", "--max-concurrency", "1,2"], "--max-concurrency: takes one value")
        self.assert_refused([*base, "--gpus", "2", "--enable-dp-attention"], "--attn-dp-size")
        self.assert_refused([*base, "--gpus", "2", "--pd-disaggregation"], "--pd-disaggregation: `tpsim plan` finds that out")
        self.assert_refused([*base, "--gpus", "2", "--fleet", "f.yaml"], "--fleet f.yaml")
        self.assert_refused([*base, "--gpus", "2", "--executor", "numeric"], "--executor numeric")
        self.assert_refused([*base, "--gpus", "2", "--gpu-hour-cost", "1,2"], "--gpu-hour-cost: has 2 for 1")
        self.assert_refused([*base[:4], "h200-sxm,h201", *base[5:], "--gpus", "2"], "--hardware h201")
        self.assert_refused([*base[:2], "llama-3.1-405b", *base[3:4], "h100-sxm,h200-sxm", *base[5:], "--gpus", "1"],
                            "no GPU of the list has a plan", "h100-sxm: ", "h200-sxm: ")
        self.assert_refused([*base[:2], "llama-3.1-405b", *base[3:], "--gpus", "1"], "weights take", "none of the")


class Pasted(CommandLine):
    """What a page says to paste, behind `tpsim run`."""

    def test_a_launch_line_runs_as_it_is(self):
        load = ["--hardware", "h200-sxm", *LOAD]
        plain = self.tpsim("run", "--model-path", "llama-3.1-8b", "--tp", "2", *load)
        for line in ("python3 -m sglang.launch_server", "sglang serve",
                     "SGLANG_VLM_CACHE_SIZE_MB=50 /usr/bin/python -m sglang.launch_server"):
            done = self.tpsim("run", *line.split(), "--model-path", "meta-llama/Llama-3.1-8B-Instruct", "--tp", "2",
                              *load)
            self.assertEqual((done.returncode, done.stderr, done.stdout), (0, "", plain.stdout))
        done = self.tpsim("run", "CUDA_VISIBLE_DEVICES=0,1", "python3", "-m", "sglang.launch_server", "--model-path",
                          "llama-3.1-8b", "--tp", "2", *load)
        self.assertEqual((done.returncode, done.stdout), (0, plain.stdout))
        self.assertRegex(done.stderr, r"\Atpsim: warning: CUDA_VISIBLE_DEVICES: [^\n]+\n\Z")

    def test_all_refusals_come_at_once(self):
        base = ["run", "--model-path", "llama-3.1-8b", "--hardware", "h200-sxm", *LOAD]
        self.assert_refused([*base, "--enable-lora", "--node-rank", "2", "--no-such-thing", "3", "--dcp-size", "2",
                             "--chunked-prefill-size", "abc", "--page-size", "x"],
                            "--enable-lora: ", "--node-rank: ", "--no-such-thing: unknown flag", "--dcp-size: ", "--chunked-prefill-size abc: ", "--page-size x: ")

    def test_a_trace_of_standard_input(self):
        trace = self.trace()
        words = [self.program, "run", "--model-path", "llama-3.1-8b", "--hardware", "h200-sxm", "--trace"]
        with open(trace, "rb") as file:
            piped = subprocess.run([*words, "-"], stdin=file, capture_output=True, text=True, timeout=60)
        plain = subprocess.run([*words, trace], capture_output=True, text=True, timeout=60)
        self.assertEqual((piped.returncode, piped.stderr, piped.stdout), (0, "", plain.stdout))
        # Every search of a plan has it.
        words = [self.program, "plan", "--model-path", "llama-3.1-8b", "--gpus", "1,2", "--hardware", "h100-sxm,h200-sxm",
                 "--attention-backends", "fa3", "--chunked-prefill-size", "8192", "--slo", "ttft:1", "--trace"]
        with open(trace, "rb") as file, subprocess.Popen(["cat"], stdin=file, stdout=subprocess.PIPE) as pipe:
            piped = subprocess.run([*words, "-"], stdin=pipe.stdout, capture_output=True, text=True, timeout=60)
        plain = subprocess.run([*words, trace], capture_output=True, text=True, timeout=60)
        self.assertEqual((piped.returncode, piped.stdout), (0, plain.stdout))
        self.assertIn("\n    1 GPU: none of ", piped.stdout)

    def test_help(self):
        self.assertEqual(self.tpsim("help").stdout, self.tpsim("--help").stdout)
        self.assertEqual(self.tpsim("help", "plan").stdout, self.tpsim("plan", "--help").stdout)
        self.assertRegex(self.tpsim("help", "plan").stdout, re.compile(r"--gpus N .*--explain", re.S))

    def test_the_nearest_models_are_named(self):
        self.assert_refused(["run", "--model-path", "llama-3.1-9b", "--hardware", "h200-sxm", *LOAD],
                            "did you mean llama-3.1-8b, llama-3.1-70b")


if __name__ == "__main__":
    main()
