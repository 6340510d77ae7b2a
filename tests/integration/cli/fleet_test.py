#!/usr/bin/env python3
"""Several replicas behind a router.

Usage: fleet_test.py TPSIM [CLASS ...]
"""

import csv
import json
import os

from command_line import CommandLine, main


class Fleet(CommandLine):
    LOAD = ("--model-path", "llama-3.1-8b", "--hardware", "h200-sxm", "--dataset-name", "random", "--num-prompts", "120",
            "--random-input-len", "400", "--random-output-len", "30", "--request-rate", "60")

    def test_rows_of_replicas_add_up(self):
        for policy in ("random", "round_robin", "power_of_two", "cache_aware"):
            report, requests, text = self.served(*self.LOAD, "--dp-size", "3", "--router-policy", policy)
            rows = report["replicas"]
            self.assertEqual([row["replica"] for row in rows], [0, 1, 2])
            for row in rows:
                mine = [r for r in requests if int(r["replica"]) == row["replica"]]
                self.assertEqual(row["requests"], len(mine))
                self.assertEqual(row["output_tokens"], sum(int(r["output_tokens"]) for r in mine))
            self.assertEqual(sum(row["requests"] for row in rows), 120)
            self.assertEqual(len(report["ranks"]), 3)
            self.assertEqual(report["server_args"]["router_policy"], policy)
            self.assertIn("Requests by replica:", text)

    def test_one_replica_is_none(self):
        report, requests, text = self.served(*self.LOAD, )
        same, _, again = self.served(*self.LOAD, "--dp-size", "1")
        self.assertEqual(text, again)
        self.assertEqual(report, same)
        self.assertNotIn("replicas", report)
        self.assertNotIn("replica", requests[0])

    def test_threads_change_nothing(self):
        """Each server plans the lengths that it meets itself, whichever thread it is on."""
        words = (*self.LOAD, "--dp-size", "4", "--attention-backend", "torch_native")
        one, requests, _ = self.served(*words, "--jobs", "1")
        self.assertEqual((one, requests), self.served(*words, "--jobs", "3")[:2])

    def test_the_controller_of_one_server(self):
        report, _, _ = self.served(*self.LOAD, "--dp-size", "2", "--load-balance-method", "total_requests")
        self.assertEqual(report["server_args"]["router_policy"], "total_requests")
        self.assertLess(abs(report["replicas"][0]["requests"] - report["replicas"][1]["requests"]), 20)

    def test_compared_by_numbers_of_replicas(self):
        folder = os.path.join(self.folder, "out")
        done = self.tpsim("compare", *self.LOAD, "--attention-backends", "fa3", "--tp", "2,1", "--dp-size", "1,2",
                          "--report-dir", folder)
        self.assertEqual(done.returncode, 0, done.stderr)
        with open(os.path.join(folder, "report.json")) as file:
            runs = json.load(file)["runs"]
        self.assertEqual([(r["settings"]["tp_size"], r["settings"]["dp_size"]) for r in runs],
                         [("2", "1"), ("2", "2"), ("1", "1"), ("1", "2")])

    def test_refusals(self):
        for words, sentence in (
                (("--router-policy", "cache_aware"), "--router-policy: needs replicas"),
                (("--router-cache-threshold", "0.2"), "--router-cache-threshold: needs replicas"),
                (("--dp-size", "2", "--router-policy", "bucket"), "--router-policy bucket: is a policy of servers that prefill alone"),
                (("--dp-size", "2", "--router-policy", "nearest"), "--router-policy"),
                (("--dp-size", "2", "--pp-size", "2"), "--dp-size 2: --pp-size of several replicas"),
                (("--dp-size", "2", "--record-batches", "b.pb"), "--dp-size 2: --record-batches of several replicas"),
                (("--dp-size", "2", "--checkpoint", "c", "--report-dir", "d"), "--dp-size 2: a checkpoint"),
                (("--dp-size", "2", "--router-cache-threshold", "1.5"), "--router-cache-threshold 1.5")):
            self.assert_refused(["run", *self.LOAD, *words], sentence)

    ROUTED = LOAD + ("--dp-size", "3", "--router-policy", "cache_aware")

    def test_a_replica_dies_and_comes_back(self):
        report, requests, text = self.served(*self.ROUTED, "--replica-failure", "1@0.5..0.6", "--replica-startup-seconds", "0.2")
        plain, _, _ = self.served(*self.ROUTED)
        failed = [r for r in requests if r["state"] == "failed"]
        self.assertEqual(len(requests), 120)
        self.assertEqual(report.get("lost", 0), len(failed))
        self.assertEqual(report["completed"] + len(failed), 120)
        self.assertEqual([row["deaths"] for row in report["replicas"]], [0, 1, 0])
        self.assertLess(report["replicas"][1]["up_seconds"], report["replicas"][0]["up_seconds"])
        self.assertGreater(report["elasticity"]["gpu_seconds_per_request"], 0)
        self.assertIn("GPU seconds:", text)
        self.assertNotIn("elasticity", plain)
        self.assertNotIn("lost", plain)
        self.assertNotIn("deaths", plain["replicas"][0])

    def test_all_dead_is_an_end(self):
        report, requests, text = self.served(*self.ROUTED, "--replica-failure", "0@0,1@0,2@0")
        self.assertEqual({r["state"] for r in requests}, {"failed"})
        self.assertIn("120 that reached no replica in 5 attempts", text)
        self.assertEqual(report["lost"], 120)

    def test_costs(self):
        report, _, text = self.served(*self.LOAD, "--dp-size", "2", "--router-policy", "random", "--gpu-hour-cost", "3.6")
        self.assertAlmostEqual(report["cost"], 2 * report["duration"] / 1000, places=9)
        tokens = report["total_input_tokens"] + report["total_output_tokens"]
        self.assertAlmostEqual(report["cost_per_million_tokens"], report["cost"] / tokens * 1e6)
        self.assertAlmostEqual(report["cost_per_thousand_requests"], report["cost"] / 120 * 1e3)
        self.assertIn("Cost:", text)
        self.assertNotIn("cost", self.served(*self.LOAD)[0])
        files = []
        for name, cost in (("h200-sxm", 3.6), ("l40s", 0.9)):
            with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "..", "rank", "catalogue", "hardware",
                                   name + ".json")) as file:
                hardware = json.load(file)
            hardware["gpu_hour_cost"] = cost
            files.append(os.path.join(self.folder, f"mine-{name}.json"))
            with open(files[-1], "w") as file:
                json.dump(hardware, file)
        file = self.write_fleet(self.ROUTER + "workers:\n"
                                f"- {{hardware: {files[0]}, args: --model-path llama-3.1-8b}}\n"
                                f"- {{count: 2, hardware: {files[1]}, args: --model-path llama-3.1-8b --tp 2}}\n")
        report, _ = self.fleet(file)
        self.assertAlmostEqual(report["cost"], (3.6 + 4 * 0.9) * report["duration"] / 3600, places=9)
        scaled, _, _ = self.served(*self.LOAD, "--dp-size", "1", "--router-policy", "round_robin", "--autoscale", "1..2",
                                   "--autoscale-target", "queue:100000", "--gpu-hour-cost", "3600")
        self.assertAlmostEqual(scaled["cost"], scaled["elasticity"]["gpu_seconds"])
        folder = os.path.join(self.folder, "out")
        done = self.tpsim("compare", *self.LOAD, "--dp-size", "1,2", "--gpu-hour-cost", "2", "--report-dir", folder)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("cost/M tok", done.stdout)
        with open(os.path.join(folder, "sweep.csv")) as file:
            self.assertEqual(len([float(row["cost_per_million_tokens"]) for row in csv.DictReader(file)]), 2)
        self.assert_refused(["run", *self.LOAD, "--gpu-hour-cost", "2,3"], "--gpu-hour-cost: takes one value here")

    def test_lines_of_sglangs_documentation(self):
        """Of its pages on pairs (DeepSeek on two nodes), on best practices of HiCache with pairs, and on the router."""
        deepseek = ("  hardware: h200-sxm\n  args: |\n    python -m sglang.launch_server \\\n      --model-path deepseek-ai/DeepSeek-V3-0324 \\\n"
                    "      --disaggregation-ib-device ${device_name} --host ${local_ip} --dist-init-addr ${master_ip}:5000 \\\n"
                    "      --trust-remote-code --nnodes 2 --node-rank 0 --tp-size 16 --dp-size 8 --enable-dp-attention \\\n"
                    "      --moe-a2a-backend deepep --mem-fraction-static 0.8 --disaggregation-mode ")
        router = ("router: python -m sglang_router.launch_router --pd-disaggregation --prefill http://127.0.0.1:30000 "
                  "--decode http://127.0.0.1:30001 --host 0.0.0.0 --port 8000\n")
        report, _ = self.fleet(self.write_fleet(f"{router}prefill:\n{deepseek}prefill\ndecode:\n{deepseek}decode \\\n"
                                                "      --max-running-requests 128\n"))
        self.assertEqual((report["completed"], len(report["ranks"])), (120, 32))
        tier = ("--page-size 64 --hicache-ratio 2 --hicache-size 0 --hicache-io-backend direct --hicache-write-policy write_through "
                "--hicache-storage-backend file --hicache-storage-prefetch-policy wait_complete --disaggregation-ib-device mlx5_0 "
                "--disaggregation-transfer-backend mooncake")
        of = "  hardware: h200-sxm\n  args: python3 -m sglang.launch_server --model-path deepseek-r1 --tp 8 --enable-metrics " + tier
        report, _ = self.fleet(self.write_fleet(f"{router}prefill:\n{of} --disaggregation-mode prefill --enable-hierarchical-cache\n"
                                                f"decode:\n{of} --disaggregation-mode decode\n"))
        self.assertEqual(report["completed"], 120)
        self.assertGreater(report["host_pool_tokens"], 0)
        done = self.tpsim("run", *"python3 -m sglang_router.launch_server --host 0.0.0.0 --port 8080 --model meta-llama/Llama-3.1-8B-Instruct "
                          "--tp-size 1 --dp-size 8 --grpc-mode --log-level debug --router-prometheus-port 10001 "
                          "--router-tool-call-parser llama --router-health-success-threshold 2 --router-health-check-timeout-secs 6000 "
                          "--router-health-check-interval-secs 60 --router-model-path meta-llama/Llama-3.1-8B-Instruct "
                          "--router-policy round_robin --router-log-level debug --hardware h200-sxm".split(), *self.FILE_LOAD)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_limits_of_the_router(self):
        for limits, refused in ((("2",), True), (("2", "--router-rate-limit-tokens-per-second", "100000"), False),
                                (("2", "--router-queue-size", "0"), True), (("1000",), False)):
            report, requests, text = self.served(*self.ROUTED, "--router-max-concurrent-requests", *limits)
            failed = [r for r in requests if r["state"] == "failed"]
            self.assertEqual(len(requests), 120)
            self.assertEqual(bool(failed), refused, limits)
            self.assertEqual(report["elasticity"].get("refused", 0), len(failed))
            self.assertEqual(report["completed"] + len(failed), 120)
        self.assert_refused(["run", *self.ROUTED, "--router-rate-limit-tokens-per-second", "5"],
                            "limits nothing without --router-max-concurrent-requests")
        self.assert_refused(["run", *self.LOAD, "--router-max-concurrent-requests", "5"], "needs replicas")
        file = self.write_fleet("router: --policy cache_aware --max-concurrent-requests 2 --queue-size 128 --queue-timeout-secs 30\n"
                                "workers: {count: 3, hardware: h200-sxm, args: --model-path llama-3.1-8b}\n")
        report, _ = self.fleet(file)
        self.assertGreater(report["elasticity"]["refused"], 0)

    def test_limits_of_the_router_before_pairs(self):
        pairs = (*self.LOAD, "--pd-disaggregation", "--prefill", "1", "--decode", "2")
        free, _, _ = self.served(*pairs, "--router-policy", "round_robin")
        for limit, refused in (("3", True), ("1000", False)):
            report, requests, _ = self.served(*pairs, "--router-policy", "round_robin", "--router-max-concurrent-requests", limit)
            failed = [r for r in requests if r["state"] == "failed"]
            self.assertEqual(bool(failed), refused)
            self.assertEqual(report["elasticity"].get("refused", 0), len(failed))
            self.assertEqual(report["completed"] + len(failed), 120)
            prefill, *decode = [row["requests"] for row in report["replicas"]]
            self.assertEqual((prefill, sum(decode)), (report["completed"], report["completed"]))
            for row in requests:
                self.assertEqual(row["prefill_replica"], "" if row["state"] == "failed" else "0")
            self.assertEqual([row["deaths"] for row in report["replicas"]], [0, 0, 0])
        for key in ("mean_ttft_ms", "mean_tpot_ms", "duration", "completed"):
            self.assertEqual(report[key], free[key])
        file = self.write_fleet("router: --policy round_robin --max-concurrent-requests 3\n"
                                "prefill: {hardware: h200-sxm, args: --model-path llama-3.1-8b}\n"
                                "decode: {count: 2, hardware: h200-sxm, args: --model-path llama-3.1-8b}\n")
        report, _ = self.fleet(file)
        self.assertGreater(report["elasticity"]["refused"], 0)

    def test_pairs_that_come_and_go(self):
        """Each side by itself; a server that is not up gets nothing."""
        same = "hardware: h200-sxm, args: --model-path llama-3.1-8b"
        text = f"router: --policy round_robin\ndecode: {{{same}, count: 1, autoscale: 1..3}}\nprefill: {{{same}, count: 2, autoscale: 1..2}}\n"
        file = self.write_fleet(text)
        words = ("--autoscale-target", "queue:4", "--autoscale-interval-secs", "0.2", "--replica-startup-seconds", "0.5")
        report, _ = self.fleet(file, *words)
        self.assertEqual((report["completed"], report["elasticity"]["lost_unreached"]), (120, 0))
        prefill, decode = report["replicas"][:2], report["replicas"][2:]
        self.assertEqual([row["role"] for row in report["replicas"]], ["prefill"] * 2 + ["decode"] * 3)
        self.assertEqual(sum(row["requests"] for row in prefill), 120)
        self.assertEqual(sum(row["requests"] for row in decode), 120)
        self.assertAlmostEqual(decode[0]["up_seconds"], report["duration"], delta=0.05)
        for row in decode[1:]:  # which were started
            self.assertTrue(0 < row["up_seconds"] < report["duration"] - 0.5, row)
            self.assertGreater(row["requests"], 0)
        with open(os.path.join(self.folder, "out/requests.csv")) as rows:
            later = [float(r["arrival_time"]) for r in csv.DictReader(rows) if int(r["decode_replica"]) > 2]
        self.assertGreater(min(later), 0.5)
        still, _ = self.fleet(self.write_fleet(text.replace("count: 1, autoscale: 1..3", "count: 3, autoscale: 3..3")
                                               .replace("autoscale: 1..2", "autoscale: 2..2")), *words)
        plain, _ = self.fleet(self.write_fleet(text.replace("count: 1, autoscale: 1..3", "count: 3").replace(", autoscale: 1..2", "")))
        for key in ("mean_ttft_ms", "mean_tpot_ms", "duration", "completed"):
            self.assertEqual(still[key], plain[key])
        self.assert_refused(["run", "--fleet", self.write_fleet(text.replace(", autoscale: 1..2", "").replace(", autoscale: 1..3", "")),
                             *self.FILE_LOAD, "--replica-failure", "0@1..2"],
                            "--replica-failure: with prefill and decode apart is not simulated")
        pairs = (*self.LOAD, "--pd-disaggregation", "--prefill", "1", "--decode", "2", "--decode-policy", "round_robin")
        free, _, _ = self.served(*pairs)
        slow, requests, _ = self.served(*pairs, "--replica-slowdown", "1@0..100:x3")
        self.assertEqual(slow["completed"], 120)
        tpot = {str(replica): [] for replica in (1, 2)}
        for r in requests:
            if int(r["output_tokens"]) > 5:
                tpot[r["decode_replica"]].append((float(r["finish_time"]) - float(r["first_token_time"])) / (int(r["output_tokens"]) - 1))
        mean = {replica: sum(of) / len(of) for replica, of in tpot.items()}
        self.assertGreater(mean["1"], 2 * mean["2"])
        self.assertGreater(slow["mean_tpot_ms"], 1.5 * free["mean_tpot_ms"])
        self.assert_refused(["run", *pairs, "--replica-slowdown", "3@0..100:x3"], "there is no replica 3; they are 0 to 2")
        self.assert_refused(["run", *pairs, "--replica-failure", "0@1..2"], "--replica-failure: with --pd-disaggregation is not simulated")

    def test_a_fixed_number_is_the_plain_run(self):
        report, _, _ = self.served(*self.ROUTED, "--autoscale", "3..3", "--autoscale-target", "queue:5")
        plain, _, _ = self.served(*self.ROUTED)
        for run in (report, plain):
            run.pop("server_args")
            run.pop("elasticity", None)
            for row in run["replicas"]:
                for key in ("up_seconds", "gpu_seconds", "deaths"):
                    row.pop(key, None)
        self.assertEqual(report, plain)

    def test_scaled_by_its_queue(self):
        report, _, _ = self.served(*self.LOAD, "--dp-size", "1", "--router-policy", "round_robin", "--autoscale", "1..4",
                                   "--autoscale-target", "queue:4", "--autoscale-interval-secs", "0.2",
                                   "--replica-startup-seconds", "0.1")
        self.assertEqual(report["completed"], 120)
        self.assertGreater(report["elasticity"]["most_replicas"], 1)
        self.assertEqual(report["server_args"]["autoscale"], "1..4")

    def test_a_fleet_whose_replicas_die(self):
        file = self.write_fleet(self.ROUTER + "workers: {count: 2, hardware: h200-sxm, args: --model-path llama-3.1-8b}\n")
        report, _ = self.fleet(file, "--replica-failure", "0@0.5")
        self.assertEqual(report["replicas"][0]["deaths"], 1)
        file = self.write_fleet("router: --policy random --retry-max-retries 3\n"
                                "workers: {count: 2, hardware: h200-sxm, args: --model-path llama-3.1-8b}\n")
        self.assert_refused(["run", "--fleet", file, *self.FILE_LOAD, "--replica-failure", "0@0.5"],
                            "give --router-retry-max-retries beside --fleet")

    def test_a_fleet_scaled_by_its_service_levels(self):
        same = "{hardware: h200-sxm, args: --model-path llama-3.1-8b"
        file = self.write_fleet(self.ROUTER + f"workers:\n- {same}, name: fixed}}\n- {same}, name: more, autoscale: 1..3}}\n")
        scaled = ("--slo", "ttft:1", "--autoscale-target", "slo:0.9", "--autoscale-interval-secs", "0.2",
                  "--replica-startup-seconds", "0.1")
        report, _ = self.fleet(file, *scaled)
        self.assertEqual([(row["group"], row["requests"] > 0) for row in report["replicas"]],
                         [("fixed", True)] + [("more", True)] * 3)
        self.assertEqual(report["elasticity"]["most_replicas"], 4)
        self.assertEqual((report["server_args"]["autoscale"], report["server_args"]["autoscale_target"]),
                         ("more: 1..3", "slo:0.9"))
        self.assertEqual(self.fleet(file, *scaled, "--jobs", "3")[0], report)
        plenty, _ = self.fleet(file, "--slo", "ttft:60000", *scaled[2:])
        self.assertEqual(plenty["elasticity"]["most_replicas"], 2)
        for words, sentence in (((), f"autoscale in {file}: needs --autoscale-target"),
                                (("--autoscale-target", "slo:0.9"), "--autoscale-target slo:0.9: needs --slo"),
                                ((*scaled, "--autoscale", "1..3"), "with --fleet it stands in the file, as autoscale: 1..3")):
            self.assert_refused(["run", "--fleet", file, *self.FILE_LOAD, *words], sentence)
        self.assert_refused(["serve", "--fleet", file], "do not come and go")

    def test_flags_for_failures_without_any(self):
        two = (*self.LOAD, "--dp-size", "2", "--router-policy", "random")
        for words in (("--router-retry-max-retries", "3"), ("--router-disable-retries",)):
            done = self.tpsim("run", *two, *words)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn("mean nothing where no replica fails", done.stderr)

    def test_refusals_of_what_comes_and_goes(self):
        two = ("--dp-size", "2", "--router-policy", "random")
        for words, sentence in (
                (("--replica-failure", "0@1"), "--replica-failure: is of replicas behind SGLang's router"),
                (("--dp-size", "2", "--replica-failure", "0@1"), "--replica-failure: is of replicas behind SGLang's router"),
                ((*two, "--replica-failure", "2@1"), "there is no replica 2"),
                ((*two, "--replica-failure", "1@5..3"), "ends before it begins"),
                ((*two, "--replica-failure", "1"), "must be REPLICA@FROM..UNTIL"),
                ((*two, "--replica-slowdown", "1@5..9"), "must be REPLICA@FROM..UNTIL:xFACTOR"),
                ((*two, "--autoscale", "1..4"), "--autoscale: needs --autoscale-target"),
                ((*two, "--autoscale", "4..1"), "MAX is below MIN"),
                ((*two, "--autoscale", "3..4", "--autoscale-target", "kv:0.5"), "--dp-size 2 lies outside of it"),
                ((*two, "--autoscale-target", "queue:3"), "--autoscale-target: needs --autoscale"),
                ((*two, "--autoscale", "1..2", "--autoscale-target", "ttft:9"), "must be queue:N"),
                ((*two, "--replica-startup-seconds", "3"), "no replica starts"),
                ((*two, "--replica-failure", "0@1", "--trace-out", "t.pftrace"), "with --trace-out is not simulated")):
            self.assert_refused(["run", *self.LOAD, *words], sentence)

    def write_fleet(self, text, name="fleet.yaml"):
        with open(os.path.join(self.folder, name), "w") as file:
            file.write(text)
        return name

    ROUTER = "router: python3 -m sglang_router.launch_router --policy round_robin --port 30000\n"
    FILE_LOAD = LOAD[4:]

    def fleet(self, file, *words):
        folder = os.path.join(self.folder, "out")
        done = self.tpsim("run", "--fleet", file, *self.FILE_LOAD, "--report-dir", folder, *words)
        self.assertEqual(done.returncode, 0, done.stderr)
        with open(os.path.join(folder, "report.json")) as file:
            return json.load(file), done

    def test_a_file_of_equal_servers_is_dp_size(self):
        file = self.write_fleet(self.ROUTER + "workers: {count: 3, hardware: h200-sxm, args: --model-path llama-3.1-8b}\n")
        report, _ = self.fleet(file)
        same, _, _ = self.served(*self.LOAD, "--dp-size", "3", "--router-policy", "round_robin")
        for row in report["replicas"]:
            self.assertEqual((row.pop("group"), row.pop("hardware"), row.pop("gpus")), ("workers", "h200-sxm", 1))
            row.pop("backend")
        for run in (report, same):
            run.pop("server_args")
        self.assertEqual(report, same)

    def test_unequal_servers(self):
        file = self.write_fleet(self.ROUTER + """
workers:
  - {count: 2, hardware: h200-sxm, args: --model-path llama-3.1-8b}
  - name: small
    hardware: l40s
    args: |
      X=1 python3 -m sglang.launch_server --model-path llama-3.1-8b \\
        --tp 2 --host 0.0.0.0  # two of them
""")
        report, done = self.fleet(file)
        self.assertEqual([(r["group"], r["hardware"], r["gpus"], r["requests"]) for r in report["replicas"]],
                         [("workers", "h200-sxm", 1, 40), ("workers", "h200-sxm", 1, 40), ("small", "l40s", 2, 40)])
        self.assertEqual(report["hardware"], "h200-sxm + l40s")
        self.assertEqual(len(report["ranks"]), 4)
        self.assertNotIn("error_bands", report)
        self.assertIn("no fleet of unequal servers was measured", done.stderr)
        self.assertIn("--host, --port", done.stderr.replace("--port, --host", "--host, --port"))

    def test_prefill_and_decode(self):
        pair = """
prefill: {count: 2, hardware: h200-sxm, args: python3 -m sglang.launch_server --model-path llama-3.1-8b --disaggregation-mode prefill}
decode:
  - hardware: h200-sxm
    args: --model-path llama-3.1-8b --disaggregation-mode decode --attention-backend flashinfer --max-total-tokens 60000
"""
        file = self.write_fleet("router: --pd-disaggregation --policy round_robin\n" + pair)
        report, _ = self.fleet(file)
        rows = report["replicas"]
        self.assertEqual([(r["role"], r["group"], r["requests"]) for r in rows],
                         [("prefill", "prefill", 60), ("prefill", "prefill", 60), ("decode", "decode", 120)])
        self.assertEqual(rows[2]["backend"], "flashinfer")
        with open(os.path.join(self.folder, "out/requests.csv")) as requests:
            for row in csv.DictReader(requests):
                self.assertEqual(row["decode_replica"], "2")
        # The same as said on the command line.
        folder = os.path.join(self.folder, "same")
        done = self.tpsim("run", *self.LOAD, "--pd-disaggregation", "--prefill", "2", "--prefill-policy", "round_robin",
                          "--decode-policy", "round_robin",
                          "--decode-args=--attention-backend flashinfer --max-total-tokens 60000", "--report-dir", folder)
        self.assertEqual(done.returncode, 0, done.stderr)
        with open(os.path.join(folder, "report.json")) as text:
            same = json.load(text)
        for key in ("duration", "mean_ttft_ms", "mean_tpot_ms", "ranks"):
            self.assertEqual(report[key], same[key], key)
        done = self.tpsim("run", *self.LOAD, "--pd-disaggregation", "--prefill", "2", "--prefill-policy", "bucket",
                          "--router-bucket-adjust-interval-secs", "2", "--report-dir", folder)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.write_fleet("router: --policy random\n" + pair.replace("mode decode", "mode prefill"))
        self.assert_refused(["run", "--fleet", "fleet.yaml", *self.FILE_LOAD],
                            "decode: --disaggregation-mode prefill: stands under decode")
        self.write_fleet("router: --policy random\n" + pair.replace("--attention-backend flashinfer", "--page-size 64"))
        self.assert_refused(["run", "--fleet", "fleet.yaml", *self.FILE_LOAD], "prefill and decode: --page-size: prefill")

    def test_fleets_are_compared(self):
        workers = "workers: {count: %d, hardware: h200-sxm, args: --model-path llama-3.1-8b}\n"
        for count in (2, 3):
            self.write_fleet(self.ROUTER + workers % count, f"{count}.yaml")
        done = self.tpsim("compare", "--fleet", "2.yaml,3.yaml", *self.FILE_LOAD, "--report-dir", "both")
        self.assertEqual(done.returncode, 0, done.stderr)
        with open(os.path.join(self.folder, "both/report.json")) as file:
            runs = json.load(file)["runs"]
        self.assertEqual([len(run["replicas"]) for run in runs], [2, 3])
        for name in ("* --fleet 2 ", "  --fleet 3 ", "Best: --fleet 2 ("):
            self.assertIn(name, done.stdout)
        self.assert_refused(["compare", "--fleet", "2.yaml,3.yaml", *self.FILE_LOAD, "--trace-out", "t.gz"],
                            "is a trace of one run, use `tpsim run`")
        self.assert_refused(["run", "--fleet", "2.yaml,3.yaml", *self.FILE_LOAD], "takes one file here")

    MODELS = """router: --enable-igw --policy cache_aware
workers:
  - {name: chat, count: 2, share: 3, hardware: h200-sxm, args: --model-path llama-3.1-8b}
  - {name: code, share: 1, hardware: h200-sxm, args: --model-path qwen3-8b --served-model-name qwen}
"""

    def write_trace(self, models, name="models.jsonl"):
        with open(os.path.join(self.folder, name), "w") as file:
            for i, model in enumerate(models):
                row = {"arrival_time": i / 10, "prompt_len": 300 + i, "max_new_tokens": 20}
                file.write(json.dumps(row | ({"model": model} if model else {})) + "\n")
        return name

    def test_two_models_behind_one_router(self):
        report, done = self.fleet(self.write_fleet(self.MODELS))
        chat, more, code = [row["requests"] for row in report["replicas"]]
        self.assertEqual(chat + more + code, 120)
        self.assertTrue(20 <= code <= 40, code)
        self.assertTrue(chat > 0 and more > 0)
        self.assertEqual(report["model"], "llama-3.1-8b + qwen3-8b")
        self.assertEqual([row["model"] for row in report["replicas"]], ["llama-3.1-8b", "llama-3.1-8b", "qwen"])
        with open(os.path.join(self.folder, "out/requests.csv")) as file:
            for row in csv.DictReader(file):
                self.assertEqual(row["model"], "qwen" if row["replica"] == "2" else "llama-3.1-8b")
        self.assertNotIn("--served-model-name", done.stderr)
        again, _ = self.fleet("fleet.yaml", "--jobs", "2")
        self.assertEqual(report, again)
        # A trace that names them: each model's servers do what they do alone.
        trace = self.write_trace(["qwen" if i % 3 == 0 else "llama-3.1-8b" for i in range(60)])
        named = self.MODELS.replace("share: 3, ", "").replace("share: 1, ", "")
        self.write_fleet(named)
        def rows(fleet, trace):
            done = self.tpsim("run", "--fleet", fleet, "--trace", trace, "--report-dir", "named")
            self.assertEqual(done.returncode, 0, done.stderr)
            with open(os.path.join(self.folder, "named/report.json")) as file:
                return json.load(file)["replicas"]
        both = rows("fleet.yaml", trace)
        self.assertEqual([both[0]["requests"] + both[1]["requests"], both[2]["requests"]], [40, 20])
        alone = self.tpsim("run", "--model-path", "llama-3.1-8b", "--hardware", "h200-sxm", "--trace", trace)
        self.assertIn("requests name 2 models, one serves them all", alone.stderr)
        with open(os.path.join(self.folder, trace)) as file:
            lines = [line for line in file if "llama" in line]
        with open(os.path.join(self.folder, "chat.jsonl"), "w") as file:
            file.writelines(lines)
        self.write_fleet("".join(line + "\n" for line in named.splitlines() if "qwen" not in line), "chat.yaml")
        for row, alone in zip(both, rows("chat.yaml", "chat.jsonl")):
            self.assertEqual({key: row[key] for key in ("requests", "output_tokens", "steps")},
                             {key: alone[key] for key in ("requests", "output_tokens", "steps")})
        for models, sentence in ((["gpt"], "names the model gpt, which the router would answer with 503"),
                                 (["qwen", None], "names not for each request a model"), ([None], "names no model")):
            self.assert_refused(["run", "--fleet", "fleet.yaml", "--trace", self.write_trace(models, "bad.jsonl")], sentence)
        for text, sentence in (
                (self.MODELS.replace("share: 1, ", ""), "share: no servers of qwen have one"),
                (self.MODELS.replace("share: 1", "share: 0"), "fleet.yaml:4: share: 0: must be a part of requests"),
                (self.MODELS.replace("--enable-igw", ""), "fleet.yaml:3: share: is of several models"),
                (named.replace("--enable-igw", ""), "a router of several models has --enable-igw in its line"),
                (named.replace("name qwen", "name llama-3.1-8b"), "give it a --served-model-name of its own")):
            self.write_fleet(text)
            self.assert_refused(["run", "--fleet", "fleet.yaml", *self.FILE_LOAD], sentence)
        self.assert_refused(["run", "--fleet", "chat.yaml", "--trace", self.write_trace(["gpt"], "bad.jsonl")],
                            "names the model gpt, which the router would answer with 503")
        self.write_fleet(self.MODELS)
        self.assert_refused(["run", "--fleet", "fleet.yaml", "--trace", trace], "leave share out")
        # Where the only server of a model is dead, its requests are lost, and the others' are not.
        report, _ = self.fleet("fleet.yaml", "--replica-failure", "2@0")
        self.assertEqual(report["completed"], 120 - code)

    def test_refused_fleets(self):
        good = "workers: {count: 2, hardware: h200-sxm, args: --model-path llama-3.1-8b}\n"
        for text, sentence in (
                (good, "fleet.yaml:1: router is missing"),
                (self.ROUTER + good.replace("llama", "lama"), "fleet.yaml:2: workers: --model-path lama-3.1-8b"),
                (self.ROUTER + good.replace("h200", "h20000"), "fleet.yaml:2: workers: "),
                (self.ROUTER + good.replace("args: ", "args: --tp 3 "), "fleet.yaml:2: workers: --tp"),
                (self.ROUTER + good.replace("args: ", "args: --dp-size 2 "), "--dp-size 2: such a server's own"),
                (self.ROUTER + good.replace("args: ", "args: --no-such "), "fleet.yaml:2: workers: --no-such: unknown flag"),
                ("router: cache_aware\n" + good, "fleet.yaml:1: router: cache_aware: is no flag; give the router's"),
                (self.ROUTER.replace("round_robin", "bucket") + good, "fleet.yaml:1: router: --policy bucket: is a policy of servers that prefill alone"),
                (self.ROUTER.replace("--port", "--dp-aware --port") + good, "requests are sent to whole servers by SGLang"),
                (self.ROUTER + "workers:\n  - {hardware: h200-sxm, args: --model-path llama-3.1-8b}\n"
                 "  - {hardware: h200-sxm, args: --model-path qwen3-8b}\n", "fleet.yaml:4: workers 2: serves qwen3-8b")):
            self.write_fleet(text)
            self.assert_refused(["run", "--fleet", "fleet.yaml", *self.FILE_LOAD], sentence)
        self.write_fleet(self.ROUTER + good)
        self.assert_refused(["run", "--fleet", "fleet.yaml", *self.LOAD], "is of a server; with --fleet it stands in the args")
        self.assert_refused(["run", "--fleet", "nowhere.yaml", *self.FILE_LOAD], "--fleet nowhere.yaml: No such file")
        self.assert_refused(["run", "--fleet", ".", *self.FILE_LOAD], "--fleet .: ")


if __name__ == "__main__":
    main()
