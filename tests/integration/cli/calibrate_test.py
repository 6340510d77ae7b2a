#!/usr/bin/env python3
"""`tpsim calibrate`: a GPU that is not what its profile says is found out from its measurements, and what is malformed is
refused with nothing left behind.

Usage: calibrate_test.py TPSIM [CLASS ...]
"""

import csv
import json
import os

from command_line import CommandLine, main

CATALOGUE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../../rank/catalogue/hardware")

HEADER = ("server,model,tp,prefill_attention_backend,decode_attention_backend,kv_cache_dtype,load,request,sent_s,"
          "first_token_s,last_token_s,input_tokens,output_tokens,cached_tokens,arrival_s,other_flags\n")
BATCHES = "server,load,step,mode,new_seqs,new_tokens,cached_tokens,running,gen_tokens_per_s,kv_tokens\n"
LOADS = ((1024, 64, 1, 4), (1024, 64, 16, 48), (4096, 32, 32, 96), (512, 128, 64, 192), (2048, 96, 4, 16),
         (256, 64, 128, 384), (1024, 64, 32, 96), (8192, 32, 8, 24))


class Calibrate(CommandLine):
    def measure(self, hardware):
        """A folder of what a server on `hardware` would have logged, by tpsim itself."""
        folder = os.path.join(self.folder, "serving")
        os.makedirs(folder, exist_ok=True)
        requests, batches = HEADER, BATCHES
        served = ["warmup"]  # a server compiles what it meets first
        for lengths in LOADS:
            load = "closed:" + ":".join(map(str, lengths))
            report = os.path.join(self.folder, "measured", load.replace(":", "-"))
            done = self.tpsim("run", "--model-path", "llama-3.1-8b", "--hardware", hardware, "--sglang-version", "0.5.12",
                              "--attention-backend", "fa3", "--front-end", "ids", "--served-before", ",".join(served),
                              "--dataset-name", "random",
                              "--random-input-len", str(lengths[0]), "--random-output-len", str(lengths[1]),
                              "--random-range-ratio", "1", "--max-concurrency", str(lengths[2]), "--num-prompts",
                              str(lengths[3]), "--report-dir", report)
            self.assertEqual(done.returncode, 0, done.stderr)
            served.append(load)
            with open(os.path.join(report, "requests.csv")) as stream:
                for r in csv.DictReader(stream):
                    requests += (f"s,llama-3.1-8b,1,fa3,fa3,auto,{load},{r['id']},{r['arrival_time']},"
                                 f"{r['first_token_time']},{r['finish_time']},{r['input_tokens']},{r['output_tokens']},"
                                 f"{r['cached_tokens']},,\n")
            before = None
            with open(os.path.join(report, "steps.csv")) as stream:
                for k, s in enumerate(csv.DictReader(stream)):
                    end = float(s["start_time"]) + float(s["step_time"])
                    if int(s["decode_requests"]):
                        rate = int(s["decode_requests"]) / (end - before) if before is not None else 1
                        batches += f"s,{load},{k},decode,,,,{s['decode_requests']},{rate!r},{s['kv_allocated_tokens']}\n"
                        before = end
                    else:
                        batches += (f"s,{load},{k},extend,{s['extend_requests']},{s['extend_tokens']},"
                                    f"{s['cached_tokens']},{s['running']},,\n")
        for name, text in (("requests.csv", requests), ("batches.csv", batches),
                           ("servers.jsonl", json.dumps({"server": "s", "version": "0.5.12", "page_size": 1, "tp_size": 1}) + "\n")):
            with open(os.path.join(folder, name), "w") as out:
                out.write(text)
        return os.path.join(folder, "requests.csv")

    def spoilt(self, factors):
        """A profile of the H200 with some coefficients multiplied; the first calibration writes the whole of it."""
        file = self.measure("h200-sxm")
        done = self.tpsim("calibrate", "--from", file, "--hardware", "h200-sxm", "--output", "same.json")
        self.assertEqual(done.returncode, 0, done.stderr)
        with open(os.path.join(self.folder, "same.json")) as stream:
            profile = json.load(stream)
        for (name, field), factor in factors.items():
            of = profile if name is None else next(e for e in profile["efficiencies"] if e["operator_class"] == name)
            of[field] *= factor
        path = os.path.join(self.folder, "spoilt.json")
        with open(path, "w") as stream:
            json.dump(profile, stream)
        return path

    def errors(self, file, hardware):
        done = self.tpsim("validate", "--measurements", file, "--hardware", hardware, "--report-dir", "v")
        self.assertEqual(done.returncode, 0, done.stderr)
        with open(os.path.join(self.folder, "v", "validation.json")) as stream:
            result = json.load(stream)
        steps = {s["mode"]: s["error"]["median"] for s in result["steps"] if s["server"] == "all"}
        return result["groups"][0]["tpot_ms"]["mean"], steps["decode"], steps["prefill"]

    def test_a_gpu_is_found_out(self):
        """What a spoilt profile predicts wrongly, the profile calibrated from it predicts as measured."""
        spoilt = self.spoilt({("gemm", "memory"): 0.75, ("gemm", "compute"): 0.8, ("attention.fa3.decode", "memory"): 0.7})
        file = os.path.join(self.folder, "serving", "requests.csv")
        before = self.errors(file, spoilt)
        done = self.tpsim("calibrate", "--from", file, "--hardware", spoilt, "--output", "mine.json")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        for words in ("gemm memory", "gemm compute", "attention.fa3.decode memory", "Left as they were", "held out"):
            self.assertIn(words, done.stdout)
        after = self.errors(file, "mine.json")
        for name, was, limit, now in zip(("tpot", "decode", "prefill"), before, (0.15, 0.15, 0.1), after):
            self.assertGreater(was, limit, name)
            self.assertLess(now, 0.02, name)
        with open(os.path.join(self.folder, "mine.json")) as stream:
            profile = json.load(stream)
        gemm = next(e for e in profile["efficiencies"] if e["operator_class"] == "gemm")
        self.assertIn("tpsim calibrate", gemm["source"])
        self.assertLess(gemm["median_error"], 0.03)
        with open(os.path.join(CATALOGUE, "h200-sxm.json")) as stream:
            catalogue = next(e for e in json.load(stream)["efficiencies"] if e["operator_class"] == "gemm")
        self.assertAlmostEqual(gemm["memory"], catalogue["memory"], delta=0.03)
        # What these rows cannot tell is as it was, and as unmeasured as before.
        self.assertNotIn("scheduler_step_seconds", [fit["constant"] for fit in profile["constant_fits"]])
        self.assertEqual(profile["scheduler_step_seconds"], 0.001)

    def test_the_same_twice_and_with_any_number_of_threads(self):
        file = self.measure("h200-sxm")
        profiles = []
        for jobs in ("1", "3"):
            done = self.tpsim("calibrate", "--from", file, "--hardware", "h100-sxm", "--output", "o.json", "--jobs", jobs)
            self.assertEqual(done.returncode, 0, done.stderr)
            profiles.append(self.read(os.path.join(self.folder, "o.json")))
        self.assertEqual(*profiles)

    GEMM = "version,op_name,kernel_source,gemm_dtype,m,n,k,latency_ms\n"

    def gemm_rows(self, scale):
        """A table of a GPU that is `scale` times as slow as an H200 of 3.2 PB/s and 600 TFLOP/s."""
        rows = ""
        for m in (1, 8, 64, 256, 1024, 4096, 16384):
            for n in (1024, 4096, 14336, 28672):
                for k in (1024, 4096, 8192):
                    seconds = 4e-6 + scale * (2 * m * n * k / 6e14 + 2 * (m * k + n * k + m * n) / 3.2e12)
                    rows += f"1,gemm,sglang,bfloat16,{m},{n},{k},{1e3 * seconds:.6g}\n"
        return rows

    def test_tables_of_kernels(self):
        folder = os.path.join(self.folder, "kernels")
        os.makedirs(folder)
        self.write("kernels/gemm_perf.csv", self.GEMM + self.gemm_rows(2))
        for given in ("kernels", "kernels/", "kernels/gemm_perf.csv"):
            done = self.tpsim("calibrate", "--from", given, "--hardware", "h200-sxm", "--output", "o.json", timeout=200)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.assertRegex(done.stdout, r"gemm +gemm_perf +84 ")
        with open(os.path.join(self.folder, "o.json")) as stream:
            gemm = next(e for e in json.load(stream)["efficiencies"] if e["operator_class"] == "gemm")
        self.assertLess(gemm["median_error"], 0.1)
        self.assertIn("84 rows of gemm_perf of kernels", gemm["source"])
        done = self.tpsim("run", "--model-path", "llama-3.1-8b", "--hardware", "o.json", "--dataset-name", "random",
                          "--num-prompts", "4")
        self.assertEqual(done.returncode, 0, done.stderr)
        out = os.path.join(self.folder, "bad.json")
        for name, rows, parts in (
                ("gemm_perf.csv", "1,gemm,sglang,bfloat16,8,x,8,1\n", ["gemm_perf.csv:2", "n is", "number"]),
                ("gemm_perf.csv", self.gemm_rows(1) + "1,gemm,sglang,bfloat16,8,8,8,-1\n", ["gemm_perf.csv:86", "latency_ms"]),
                ("gemm_perf.csv", "1,gemm\n", ["gemm_perf.csv:2", "columns"])):
            self.write("kernels/" + name, self.GEMM + rows)
            self.assert_refused(["calibrate", "--from", "kernels", "--hardware", "h200-sxm", "--output", out], *parts)
        os.remove(os.path.join(folder, "gemm_perf.csv"))
        self.assert_refused(["calibrate", "--from", "kernels", "--hardware", "h200-sxm", "--output", out], "--from kernels",
                            "gemm_perf")

    def test_tables_of_mla_and_sparse_attention(self):
        """Each table of the collection is fitted, or the report says why not."""
        folder = os.path.join(self.folder, "mla")
        os.makedirs(folder)
        decode = "version,op_name,kernel_source,mla_dtype,kv_cache_dtype,num_heads,batch_size,isl,tp_size,step,latency_ms\n"
        for heads in (16, 32, 128):
            for batch in (1, 3, 7, 20, 64):
                for step in (255, 999, 4095, 16383):
                    ms = 1e3 * (2e-5 + 3.5 * batch * (step + 1) * 1152 / 4.8e12)
                    decode += f"1,mla,flash_attention,bfloat16,bfloat16,{heads},{batch},1,1,{step},{ms:.6g}\n"
        self.write("mla/generation_mla_perf.csv", decode)
        products = "version,op_name,kernel_source,bmm_dtype,num_tokens,num_heads,latency_ms\n"
        for heads in (16, 64, 128):
            for tokens in (1, 4, 16, 64, 256, 1024):
                for name in ("mla_gen_pre", "mla_gen_post"):
                    ms = 1e3 * (5e-6 + heads * (512 * 128 + tokens * 640) * 2 / 2e12)
                    products += f"1,{name},default,bfloat16,{tokens},{heads},{ms:.6g}\n"
        self.write("mla/mla_bmm_perf.csv", products)
        module = ("version,op_name,kernel_source,model,architecture,mla_dtype,kv_cache_dtype,gemm_type,num_heads,batch_size,"
                  "isl,tp_size,step,latency_ms\n")
        self.write("mla/mla_context_module_perf.csv", module + "".join(
            f"1,m,{source},deepseek-ai/DeepSeek-V3,D,bfloat16,bfloat16,bfloat16,16,{batch},1024,1,0,{batch}\n"
            for source in ("FLASH_ATTN", "FLASHMLA") for batch in range(1, 13)))
        self.write("mla/wideep_generation_mla_perf.csv", module +
                   "1,m,trtllm_mla,deepseek-ai/DeepSeek-V3,D,bfloat16,fp8,fp8_block,16,1,1,1,1024,0.1\n")
        dsa = module + "".join(
            f"1,sglang_dsa_indexer,sglang_dsa_indexer_flashmla_kv,deepseek-ai/DeepSeek-V3.2,D,bfloat16,fp8,bfloat16,{heads},"
            f"{batch},1,1,{step},{0.08 + batch * 1e-4 + 1e-8 * batch * step:.6g}\n"
            for heads in (16, 128) for batch in (1, 4, 16, 64, 256) for step in (512, 4096, 32768))
        self.write("mla/dsa_generation_module_perf.csv", dsa)
        done = self.tpsim("calibrate", "--from", "mla", "--hardware", "h200-sxm", "--output", "o.json", timeout=300)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        for words in (r"attention.fa3.mla_decode +generation_mla_perf +60 ", r"mla_bmm +mla_bmm_perf +36 ",
                      "attention.nsa.flashmla_kv.decode", "attention.nsa.indexer.decode",
                      "FLASHMLA: modules of this kernel are not taken apart", "trtllm_mla.mla_decode: its modules tell"):
            self.assertRegex(done.stdout, words)
        with open(os.path.join(self.folder, "o.json")) as stream:
            fitted = {e["operator_class"]: e for e in json.load(stream)["efficiencies"]}
        self.assertIn("60 rows of generation_mla_perf of mla", fitted["attention.fa3.mla_decode"]["source"])
        self.assertLess(fitted["attention.fa3.mla_decode"]["median_error"], 0.15)
        done = self.tpsim("run", "--model-path", "deepseek-v2-lite", "--hardware", "o.json", "--dataset-name", "random",
                          "--num-prompts", "4")
        self.assertEqual(done.returncode, 0, done.stderr)
        out = os.path.join(self.folder, "bad.json")
        for name, text, parts in (
                ("dsa_generation_module_perf.csv", dsa.replace("sglang_dsa_indexer_flashmla_kv", "flashmla", 1),
                 ["dsa_generation_module_perf.csv:2", "kernel_source", "sglang_dsa_indexer_KERNEL"]),
                ("generation_mla_perf.csv", decode + "1,mla,flash_attention,bfloat16,bfloat16,16,0,1,1,1,1\n",
                 ["generation_mla_perf.csv:62", "batch_size"])):
            self.write("mla/" + name, text)
            self.assert_refused(["calibrate", "--from", "mla/" + name, "--hardware", "h200-sxm", "--output", out], *parts)

    def test_requests_without_logs(self):
        """The times of requests tell something, too."""
        file = self.measure("h100-sxm")
        os.remove(os.path.join(self.folder, "serving", "batches.csv"))
        done = self.tpsim("calibrate", "--from", file, "--hardware", "h200-sxm", "--output", "o.json")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("time per token", done.stdout)

    def test_refusals_leave_nothing(self):
        good = HEADER + "a,llama-3.1-8b,1,fa3,fa3,auto,closed:64:8:1:1,0,0,0.1,0.2,64,8,0,,\n"
        file = self.write("requests.csv", good)
        out = os.path.join(self.folder, "o.json")
        wanted = ["--hardware", "h200-sxm", "--output", out]
        for words, parts in (
                (wanted, ["--from", "required"]),
                (["--from", file, "--output", out], ["--hardware", "required"]),
                (["--from", file, "--hardware", "h200-sxm"], ["--output", "required"]),
                (["--from", "nowhere.csv", *wanted], ["nowhere.csv", "no such file"]),
                (["--from", self.write("bad.csv", good + "a,b\n"), *wanted], ["bad.csv:3", "columns"]),
                (["--from", self.write("other.csv", "x,y\n1,2\n"), *wanted], ["other.csv:1", "format"]),
                (["--from", file, *wanted], ["too few", "at least"]),
                (["--from", file, "--hardware", "h201", "--output", out], ["h201"]),
                (["--from", file, "--hardware", "h200-sxm", "--output", "nowhere/o.json"], ["--output nowhere/o.json"]),
                (["--from", file, *wanted, "--jobs", "0"], ["--jobs 0"])):
            self.assert_refused(["calibrate", *words], *parts)
            self.assertFalse(os.path.exists(out))
        # A profile that is there stays as it was.
        self.write("o.json", "{}")
        self.assert_refused(["calibrate", "--from", file, *wanted], "too few")
        self.assertEqual(self.read(out), b"{}")

    def test_help(self):
        done = self.tpsim("calibrate", "--help")
        self.assertEqual(done.returncode, 0)
        for flag in ("--from", "--hardware", "--output", "--decode-log-interval 1"):
            self.assertIn(flag, done.stdout)


if __name__ == "__main__":
    main()
