#!/usr/bin/env python3
"""Diffusion pipelines from outside: `tpsim generate`, `compare`, `run` and `backends --pipeline`.

Usage: diffusion_test.py TPSIM [CLASS ...]
"""

import csv
import json
import os
import shlex

from command_line import CommandLine, main

WAN = ["--model-path", "Wan-AI/Wan2.1-T2V-14B-Diffusers", "--hardware", "h200-sxm"]
FLUX = ["--model-path", "black-forest-labs/FLUX.1-dev", "--hardware", "h100-sxm"]
BIG_SMALL = ["--num-gpus", "8", "--ulysses-degree", "4", "--ring-degree", "2"]


class Pipelines(CommandLine):
    def report(self, command, *words):
        folder = os.path.join(self.folder, "out")
        done = self.tpsim(command, *words, "--report-dir", folder)
        self.assertEqual(done.returncode, 0, done.stderr)
        return self.result(folder), done

    def refused(self, command, words, *expected):
        """Exit 2, one sentence, nothing on standard output and nothing half-written."""
        folder = os.path.join(self.folder, "refused")
        self.assert_refused([command, *words, "--report-dir", folder], *expected)
        self.assertFalse(os.path.exists(folder) and os.listdir(folder))


class Generation(Pipelines):
    def test_stages_and_operators_add_up(self):
        for words in ([*WAN, *BIG_SMALL, "--attention-backend", "sage_attn"], FLUX, [*WAN, "--num-gpus", "2"],
                      [*WAN, "--dit-layerwise-offload"]):
            with self.subTest(words=words):
                report, done = self.report("generate", *words)
                self.assertAlmostEqual(sum(s["seconds"] for s in report["stages"]), report["seconds"],
                                       delta=1e-6 * report["seconds"])
                names = [s["name"] for s in report["stages"]]
                for name in ("TextEncodingStage", "DenoisingStage", "DecodingStage"):
                    self.assertIn(name, names)
                for stage in report["stages"]:
                    self.assertLessEqual(stage["peak_bytes"], report["peak_bytes"])
                    self.assertGreaterEqual(stage["peak_bytes"], 0)
                self.assertIn(f"{report['peak_bytes'] / 2 ** 30:.1f}", done.stdout)
                self.assertTrue(report["fits"])
                self.assertEqual(sorted(os.listdir(os.path.join(self.folder, "out"))), ["report.html", "report.json"])

    def test_more_gpus_are_faster_and_degrees_are_as_asked(self):
        seconds = []
        for gpus in (1, 2, 4, 8):
            report, _ = self.report("generate", *WAN, "--num-gpus", str(gpus), "--ulysses-degree", str(gpus))
            seconds.append(report["seconds"])
            self.assertEqual(report["parallelism"]["ulysses_degree"], gpus)
            sent = sum(s["sent_bytes"] for s in report["stages"])
            self.assertEqual(sent > 0, gpus > 1)
        self.assertEqual(seconds, sorted(seconds, reverse=True))
        self.assertGreater(seconds[0] / seconds[3], 4)

    def test_offload_saves_memory_and_moves_weights(self):
        resident, _ = self.report("generate", *WAN, "--component-residency", "all=resident")
        streamed, _ = self.report("generate", *WAN, "--component-residency", "all=layerwise-offload")
        self.assertLess(streamed["peak_bytes"], resident["peak_bytes"])
        self.assertGreaterEqual(streamed["seconds"], resident["seconds"])
        moved = lambda report: sum(s["host_link_bytes"] for s in report["stages"])
        self.assertEqual(moved(resident), 0)
        self.assertGreater(moved(streamed), 2 * 14e9)

    def test_what_sglang_chooses_is_said(self):
        report, done = self.report("generate", *WAN, "--num-gpus", "2")
        self.assertEqual(report["parallelism"]["cfg_parallel_size"], 2)
        self.assertIn("--cfg-parallel-size 2, chosen by SGLang", done.stdout)
        report, done = self.report("generate", *FLUX, "--num-gpus", "2")
        self.assertEqual(report["parallelism"]["kv_gather_degree"], 2)
        self.assertIn("--kv-gather-degree 2, chosen by SGLang", done.stdout)
        rows = {(a["component"], a["role"]): a for a in report["attention"]}
        self.assertEqual(rows["transformer", "self"]["backend"], "fa")
        self.assertIn("automatic", rows["transformer", "self"]["reason"])

    def test_a_component_may_have_its_own_backend(self):
        asked = {"qwen-image": "text_encoder=torch_sdpa,transformer.self=sage_attn", WAN[1]: "transformer.cross=torch_sdpa"}
        rows = {}
        for model, backends in asked.items():
            report, _ = self.report("generate", "--model-path", model, *WAN[2:], "--attention-backend", "fa",
                                    "--component-attention-backends", backends)
            rows.update({(model, a["component"], a["role"]): a["backend"] for a in report["attention"]})
        self.assertEqual(rows, {("qwen-image", "text_encoder", "self"): "torch_sdpa", ("qwen-image", "transformer", "self"): "sage_attn",
                                (WAN[1], "text_encoder", "self"): "its own", (WAN[1], "transformer", "self"): "fa",
                                (WAN[1], "transformer", "cross"): "torch_sdpa"})

    def test_layers_that_take_no_backend_are_given_none(self):
        """T5, CLIP and Gemma 3 attend by themselves, images have no cross-attention: SGLang stops."""
        for model, backends in ((WAN[1], "text_encoder=torch_sdpa"), ("hunyuanvideo", "text_encoder=fa"),
                                ("ltx-2", "text_encoder=torch_sdpa"), ("flux.1-dev", "text_encoder.self=fa"),
                                ("flux.1-dev", "transformer.cross=torch_sdpa")):
            self.refused("generate", ["--model-path", model, *WAN[2:], "--component-attention-backends", backends],
                         "--component-attention-backends", "SGLang stops there")

    def test_ltx_2_in_two_stages(self):
        """A loop at half the size, a short one at the whole: a fraction of one loop at the whole."""
        words = ["--model-path", "Lightricks/LTX-2", *FLUX[2:], "--width", "1536", "--height", "1024"]
        once, _ = self.report("generate", *words)
        twice, _ = self.report("generate", *words, "--pipeline-class-name", "LTX2TwoStagePipeline")
        self.assertLess(twice["seconds"], 0.5 * once["seconds"])
        self.assertEqual([s["passes"] for s in twice["stages"] if s["component"] == "transformer"], [80, 3])
        self.refused("generate", [*words[:4], "--width", "800", "--height", "1024", "--pipeline-class-name", "LTX2TwoStagePipeline"], "--width")
        self.refused("generate", [*WAN, "--pipeline-class-name", "LTX2TwoStagePipeline"], "--pipeline-class-name")

    def test_quantised_checkpoints_by_their_names(self):
        """Smaller and faster, but for what a checkpoint keeps in 16 bit; FP4 is for Blackwell."""
        figures = []
        for name in (None, "lmsys/flux2-dev-modelopt-fp8-sglang-transformer", "black-forest-labs/FLUX.2-dev-NVFP4"):
            report, _ = self.report("generate", "--model-path", "black-forest-labs/FLUX.2-dev", "--hardware", "b200",
                                    *(["--transformer-path", name] if name else []))
            transformer = next(c for c in report["components"] if c["name"] == "transformer")
            figures.append((round(transformer["bytes"] / transformer["parameters"], 4), report["seconds"]))
        # FP8 keeps what modulates and what is outside of blocks; NVFP4's mixed file attention of 8 blocks, too, and of
        # what it quantises the runtime holds scales twice.
        self.assertEqual([size for size, _ in figures], [2, 1.0253, 0.7629])
        self.assertEqual(sorted(figures, reverse=True), figures)
        alone, _ = self.report("generate", "--model-path", "black-forest-labs/FLUX.2-dev-NVFP4", "--hardware", "b200")
        self.assertEqual(alone["seconds"], figures[2][1])
        self.refused("generate", ["--model-path", "black-forest-labs/FLUX.2-dev-NVFP4", *FLUX[2:]], "--hardware", "Blackwell")
        for words in (["--quantization", "fp8", "--transformer-path", "a/b-nvfp4"],
                      ["--transformer-path", "a/b-nvfp4", "--quantization", "fp8"]):
            self.refused("generate", ["--model-path", "black-forest-labs/FLUX.2-dev", "--hardware", "b200", *words],
                         "--quantization", "nvfp4")

    def test_a_transformers_path_is_the_first_ones(self):
        """Of two transformers --transformer-path quantises one, --model-path both; of a name that is in no list nothing is
        known, which is said."""
        sizes = {}
        for words in (["Wan-AI/Wan2.2-T2V-A14B-Diffusers", "--transformer-path", "a/b-nvfp4"], ["nvidia/Wan2.2-T2V-A14B-Diffusers-NVFP4"]):
            report, done = self.report("generate", "--model-path", *words, "--hardware", "b200")
            sizes[words[0]] = [round(c["bytes"] / c["parameters"], 2) for c in report["components"] if c["name"].startswith("transformer")]
            self.assertEqual("keeps in 16 bit is not known" in done.stdout, len(words) > 1)
        self.assertEqual(list(sizes.values()), [[0.65, 2], [0.85, 0.85]])

    def test_exact_images_are_decoded_by_plain_kernels(self):
        """SGLang writes down 97 against 29 ms."""
        decoding = [self.report("generate", *FLUX, "--quality", level)[0]["stages"][-1]["seconds"] for level in ("exact", "lossless")]
        self.assertAlmostEqual(decoding[0] / decoding[1], 97 / 29, delta=0.4)
        self.refused("generate", [*FLUX, "--quality", "high"], "--quality high")

    def test_sparse_layers_share_heads_where_others_gather(self):
        """Of two GPUs of a sequence; asked for by name, a gather is refused, as by SGLang."""
        sparse = ["generate", "--model-path", "fasthunyuan", *WAN[2:], "--attention-backend", "video_sparse_attn",
                  "--attention-backend-config", "sparsity=0.9", "--num-gpus", "2"]
        chosen, done = self.report(*sparse)
        self.assertIn("its layers use Ulysses", done.stdout)
        asked, _ = self.report(*sparse, "--ulysses-degree", "2")
        self.assertEqual(chosen["stages"], asked["stages"])
        self.refused(sparse[0], [*sparse[1:], "--kv-gather-degree", "2"], "--kv-gather-degree 2", "--ulysses-degree 2")

    def test_what_does_not_fit_is_said(self):
        report, done = self.report("generate", "--model-path", WAN[1], "--hardware", "a100-sxm", "--component-residency",
                                   "all=resident", "--width", "3840", "--height", "2160", "--num-frames", "241")
        self.assertFalse(report["fits"])
        self.assertIn("Does not fit: ", done.stdout)

    def test_launch_lines_of_sglang_paste(self):
        """Of its documentation and of test/server/gpu_cases.py."""
        for line in (
                "sglang generate --model-path Wan-AI/Wan2.1-T2V-1.3B-Diffusers --prompt 'A cat' 'A dog' --save-output",
                "sglang generate --model-path black-forest-labs/FLUX.1-dev --prompt 'A logo' --num-gpus 2 --ulysses-degree=2",
                "sglang serve --model-path Qwen/Qwen-Image --port 3000",
                "sglang serve --model-path Wan-AI/Wan2.2-T2V-A14B-Diffusers --num-gpus 4 --text-encoder-cpu-offload "
                "--pin-cpu-memory --dit-layerwise-offload true --ulysses-degree 4",
                "sglang serve --model-path Tongyi-MAI/Z-Image-Turbo --warmup-mode off",
                "SGLANG_CACHE_DIT_ENABLED=true sglang generate --model-path Qwen/Qwen-Image --prompt x",
                "sglang generate --model-path hunyuanvideo-community/HunyuanVideo --attention-backend torch_sdpa "
                "--component-attention-backends transformer=fa --720p --num-frames 81 --seed 42"):
            done = self.tpsim("generate", *shlex.split(line), "--hardware", "h200-sxm")
            self.assertEqual(done.returncode, 0, f"{line}: {done.stderr}")
            self.assertIn("A denoising step takes", done.stdout)

    def test_a_config_file_decides_too(self):
        config = self.write("run.yaml", "model-path: Wan-AI/Wan2.1-T2V-14B-Diffusers\nhardware: h200-sxm\n"
                                        "dit-cpu-offload: true\nnum-gpus: 2\n")
        done = self.tpsim("generate", "--config", config)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("component-offload", done.stdout)

    def test_mappings_of_a_config_file_are_flags_with_dots(self):
        """As in the configurations of SGLang's documentation."""
        config = self.write("run.json", json.dumps({"model_path": "hunyuanvideo", "hardware": "h200-sxm", "num_gpus": 2,
                                                    "vae_config": {"use_parallel_decode": False}}))
        alone, _ = self.report("generate", "--config", config)
        shared, _ = self.report("generate", "--model-path", "hunyuanvideo", *WAN[2:], "--num-gpus", "2")
        self.assertGreater(alone["stages"][-1]["seconds"], 1.5 * shared["stages"][-1]["seconds"])

    def test_an_unknown_model_is_said_not_its_flags(self):
        for command in ("generate", "run", "compare"):
            done = self.tpsim(command, "--model-path", "Lightricks/LTX-2.3", "--prompt", "x", "--num-inference-steps", "4")
            self.assertEqual(done.returncode, 2)
            self.assertIn("--model-path Lightricks/LTX-2.3: neither a known model", done.stderr)
            self.assertIn("did you mean ltx-2", done.stderr)
            self.assertNotIn("unknown flag", done.stderr)

    def test_several_processes_say_the_same_once(self):
        for processes, words in ((2, ["generate", *WAN, *BIG_SMALL]), (8, ["compare", *WAN, "--num-gpus", "1,8", "--resolutions", "480p",
                                                                            "--attention-backends", "fa,sage_attn"])):
            alone = self.tpsim(*words)
            self.assertEqual(alone.returncode, 0, alone.stderr)
            self.assertEqual(self.tpsim(*words, processes=processes).stdout, alone.stdout)

    def test_it_says_where_a_measurement_would_lie(self):
        """Bands hold the prediction, and are no narrower where nothing like it was measured."""
        widths = []
        for words in (["--model-path", "wan2.1-t2v-1.3b", "--hardware", "h200-sxm"],
                      ["--model-path", "ltx-2", "--hardware", "l40s", "--dit-layerwise-offload"]):
            report, done = self.report("generate", *words)
            for band in report["likely"]["bands"]:
                self.assertLess(band["low"], report[band["figure"]])
                self.assertGreater(band["high"], report[band["figure"]])
            widths.append({b["figure"]: b["high"] / b["low"] for b in report["likely"]["bands"]})
        self.assertGreaterEqual(widths[1]["step_seconds"], widths[0]["step_seconds"])


class BadPipelines(Pipelines):
    VALUES = {
        "--num-gpus": ["0", "-1", "two", "1025"], "--tp-size": ["0", "3"], "--sp-degree": ["0", "3"],
        "--ulysses-degree": ["0", "3"], "--ring-degree": ["0", "x"], "--kv-gather-degree": ["3"],
        "--cfg-parallel-size": ["0", "5"], "--dp-size": ["0", "3"], "--enable-cfg-parallel": ["maybe"],
        "--attention-backend": ["fa5", "", "sparge_attn"], "--component-attention-backends": ["transformer", "x=fa", "transformer.both=fa"],
        "--attention-backend-config": ["sparsity=0.5", "{"], "--installed": ["nothing"], "--performance-mode": ["fast"],
        "--component-residency": ["transformer", "x=resident", "transformer=away"], "--cpu-offload-components": ["x"],
        "--layerwise-offload-components": ["x"], "--dit-cpu-offload": ["perhaps"], "--vae-tiling": ["2"],
        "--vae-precision": ["fp8"], "--dit-precision": ["fp4"], "--text-encoder-precisions": ["int8"],
        "--batching-mode": ["static"], "--batching-max-size": ["0"], "--batching-delay-ms": ["-1", "nan"],
        "--width": ["0", "-8", "1"], "--height": ["99999"], "--num-frames": ["0"], "--num-inference-steps": ["0"],
        "--guidance-scale": ["-1", "inf"], "--true-cfg-scale": ["x"], "--fps": ["0"], "--num-outputs-per-prompt": ["0"],
        "--computed-share": ["0", "1.5", "0.5"], "--image-path": ["640x480"], "--hardware": ["h300"],
    }

    def test_each_flag_names_itself(self):
        for flag, values in self.VALUES.items():
            words = WAN[:2] if flag == "--hardware" else WAN
            for value in values:
                self.refused("generate", [*words, "--num-gpus", "8", f"{flag}={value}"] if flag != "--num-gpus"
                             else [*words, f"{flag}={value}"], flag)

    def test_what_is_not_simulated_is_refused(self):
        for words in ("--use-fsdp-inference", "--nnodes 2", "--quantization modelopt_fp8", "--transformer-weights-path x",
                      "--lora-path x", "--backend diffusers", "--enable-teacache", "--enable-spectrum", "--transformer-path x", "--enable-breakable-cuda-graph",
                      "--vae-config.use-tiling false"):
            self.refused("generate", [*WAN, *words.split()], words.split()[0])
        for words in ("--use-fsdp-inference false", "--nnodes 1", "--backend auto", "--vae-slicing false", "--vae-sp true",
                      "--vae-config.use-parallel-decode false", "--vae-config.parallel-decode-mode auto"):
            done = self.tpsim("generate", *WAN, *words.split())
            self.assertEqual(done.returncode, 0, done.stderr)

    def test_traces(self):
        for line in ("{}", "[]", '{"timestamp": -1}', '{"timestamp": 0, "width": 0}', '{"timestamp": 0, "steps": 3}',
                     '{"timestamp": 0, "num_frames": 1.5}', "x"):
            self.refused("run", [*WAN, "--trace", self.trace(line + "\n")], "trace.jsonl:1")
        self.refused("run", [*WAN, "--trace", self.trace("")], "--trace")
        self.refused("run", [*WAN, "--request-rate", "0"], "--request-rate")
        self.refused("run", [*WAN, "--goodput", "ttft:5"], "--goodput")

    def test_lists_are_for_compare(self):
        self.refused("generate", [*WAN, "--num-gpus", "1,2"], "--num-gpus")
        self.refused("compare", [*WAN, "--attention-backends", "fa,nothing"], "--attention-backends")
        self.refused("compare", [*WAN, "--resolutions", "480p,big"], "--resolutions")
        self.refused("compare", [*WAN, "--num-gpus", "8", "--ulysses-degree", "3,5"], "--ulysses-degree")


class Comparison(Pipelines):
    def test_the_best_ties_and_what_is_refused(self):
        report, done = self.report("compare", *WAN, "--attention-backends", "fa,torch_sdpa,sage_attn,video_sparse_attn",
                                   "--attention-backend-config", "sparsity=0.9", "--num-gpus", "1,2,4",
                                   "--ulysses-degree", "1,2,4", "--resolutions", "480p,720p")
        self.assertEqual(len(report["runs"]) + len(report["refused"]), 4 * 3 * 3 * 2)
        self.assertEqual(len(report["runs"]), 4 * 3 * 2)
        self.assertEqual([b["workload"] for b in report["best"]], ["480p", "720p"])
        for best in report["best"]:
            runs = [run for run in report["runs"] if run["workload"] == best["workload"]]
            self.assertEqual(min(run["seconds"] for run in runs), best["seconds"])
            self.assertEqual(sum(run["best"] for run in runs), 1)
            self.assertAlmostEqual(runs[0]["speedup"], 1)
            for run in runs:
                self.assertEqual(run["tie"], not run["best"] and run["seconds"] <= 1.01 * best["seconds"])
                self.assertAlmostEqual(run["gpu_seconds_per_output"], run["seconds"] * run["num_gpus"], places=6)
        self.assertEqual(done.stdout.count("\n* "), 2)
        seconds = {run["label"]: run["seconds"] for run in report["runs"] if run["workload"] == "720p"}
        one = lambda name: seconds[f"--num-gpus 1, --ulysses-degree 1, {name}"]
        self.assertLess(one("video_sparse_attn"), one("fa"))
        self.assertLess(one("fa"), one("torch_sdpa"))

    def test_each_run_is_that_of_generate(self):
        report, _ = self.report("compare", *FLUX, "--num-gpus", "1,2,4", "--resolutions", "1024,2048")
        for run in report["runs"]:
            width = run["settings"]["--resolutions"]
            alone, _ = self.report("generate", *FLUX, "--num-gpus", str(run["num_gpus"]), "--width", width, "--height", width)
            self.assertEqual(alone["seconds"], run["seconds"])


class PipelineLoad(Pipelines):
    def test_a_load_is_served(self):
        one, _ = self.report("generate", *WAN)
        report, _ = self.report("run", *WAN, "--num-prompts", "4", "--max-concurrency", "1")
        self.assertAlmostEqual(report["latency"]["mean"], one["seconds"])
        self.assertAlmostEqual(report["duration_seconds"], 4 * one["seconds"])
        report, _ = self.report("run", *WAN, "--num-prompts", "4", "--num-gpus", "2", "--dp-size", "2", "--goodput", "e2e:1")
        self.assertAlmostEqual(report["duration_seconds"], 2 * one["seconds"])
        self.assertEqual(report["goodput_share"], 0)
        self.assertAlmostEqual(report["busy_fraction"], 1)

    def test_a_trace_and_batches(self):
        lines = [{"timestamp": 0.1 * i, "width": 1024 if i % 2 else 512, "height": 512, "num_inference_steps": 20} for i in range(8)]
        trace = self.trace("".join(json.dumps(line) + "\n" for line in lines))
        slow, _ = self.report("run", *FLUX, "--trace", trace)
        fast, _ = self.report("run", *FLUX, "--trace", trace, "--batching-max-size", "4", "--batching-delay-ms", "1000")
        with open(os.path.join(self.folder, "out", "requests.csv")) as file:
            rows = list(csv.DictReader(file))
        self.assertEqual(len(rows), 8)
        self.assertEqual({row["width"] for row in rows}, {"512", "1024"})
        self.assertEqual(max(int(row["batch"]) for row in rows), 4)
        for row in rows:
            self.assertGreaterEqual(float(row["start"]), float(row["arrival"]))
            self.assertGreater(float(row["end"]), float(row["start"]))
        self.assertLess(fast["duration_seconds"], slow["duration_seconds"] * 1.2)

    def test_a_slower_rate_waits_less(self):
        waits = [self.report("run", *FLUX, "--num-prompts", "40", "--request-rate", rate)[0]["waiting"]["mean"]
                 for rate in ("10", "0.1", "0.01")]
        self.assertEqual(waits, sorted(waits, reverse=True))


class PipelineBackends(Pipelines):
    def test_the_matrix_and_the_choice(self):
        done = self.tpsim("backends", "--pipeline")
        self.assertEqual(done.returncode, 0, done.stderr)
        for name in ("fa3, fa4", "sliding_tile_attn", "CUDA", "NPU", "sparsity"):
            self.assertIn(name, done.stdout)
        done = self.tpsim("backends", "--pipeline", *WAN, "--json")
        rows = json.loads(done.stdout)["chosen"]["h200-sxm"]
        self.assertIn(("transformer", "fa"), {(row["Component"], row["Backend"]) for row in rows})
        every = json.loads(self.tpsim("backends", "--model-path", WAN[1], "--json").stdout)["chosen"]
        on = lambda gpu: next(row["Backend"] for row in every[gpu] if row["Component"] == "transformer")
        self.assertEqual([on("h200-sxm"), on("b200"), on("rtx-pro-6000"), on("mi300x")],
                         ["fa", "dynamic_cudnn_sdpa", "torch_sdpa", "aiter"])

    def test_language_models_go_the_other_way(self):
        self.assertIn("fa3", self.tpsim("backends").stdout)
        self.assertEqual(self.tpsim("--print-program", "generate", "--model-path", "llama-3.1-8b").stdout, "tpsim-numeric\n")
        self.assertEqual(self.tpsim("--print-program", "generate", *WAN).stdout, "tpsim-pipelines\n")
        self.assertEqual(self.tpsim("--print-program", "serve", *WAN).stdout, "tpsim-serve\n")
        self.assertEqual(self.tpsim("--print-program", "run", "--executor", "numeric", "--model-path=llama-3.1-8b").stdout,
                         "tpsim-numeric\n")

    def test_commands_of_language_models_say_so(self):
        for command in ("plan", "replay"):
            self.refused(command, FLUX, "FLUX.1-dev: is a diffusion pipeline", f"no `tpsim {command}`", "generate")


class MeasuredPasses(Pipelines):
    """`tpsim validate` of single passes: SGLang 0.5.12's own on H200s, and Wan's VAE of Diffusers on an H100."""

    ROWS = [{"model": "wan2.1-1.3b", "case": "480p81", "mode": "one", "backend": "fa", "ms": 435.7, "attention_ms": 304.8},
            {"model": "wan2.1-1.3b", "case": "480p81", "mode": "ulysses2", "backend": "fa", "ms": 216.7, "attention_ms": 126.3},
            {"model": "flux.1-dev", "case": "1024", "mode": "one", "backend": "torch_sdpa", "ms": 144.2, "attention_ms": 45.8},
            {"model": "flux.1-dev", "case": "1024", "sdpa": "cudnn", "ms": 170.4, "attention_ms": 23.7},
            {"what": "wan vae decode", "case": "480p17", "dtype": "torch.bfloat16", "ms": 349.3},
            {"model": "no-such-model", "case": "1024", "mode": "one", "backend": "fa", "ms": 1}]

    def write(self, text):
        path = os.path.join(self.folder, "passes.json")
        with open(path, "w") as file:
            file.write(text)
        return path

    def test_they_are_near(self):
        folder = os.path.join(self.folder, "out")
        done = self.tpsim("validate", "--measurements", self.write(json.dumps(self.ROWS)), "--report-dir", folder)
        self.assertEqual(done.returncode, 0, done.stderr)
        with open(os.path.join(folder, "validation.json")) as file:
            found = json.load(file)
        self.assertEqual(len(found["rows"]), 5)
        self.assertIn("no-such-model", found["not_asked"][0]["reason"])
        self.assertNotIn("ms", found["rows"][3])  # Diffusers' own module: attention alone
        for row in found["rows"]:
            for figure in ("ms", "attention_ms"):
                if figure in row:
                    self.assertAlmostEqual(row[figure]["predicted"] / row[figure]["measured"], 1, delta=0.12, msg=row["id"])

    def test_what_is_wrong_is_said(self):
        for text, expected in (("{", "JSON list"), ("[1]", "entry 1"), ('[{"ms": 1}]', "entry 1")):
            self.assert_refused(["validate", "--measurements", self.write(text)], "--measurements", expected)


class PublishedFigures(Pipelines):
    """`tpsim validate` of published generations, asked by the words of their pages."""

    HEAD = ("id,source,model,resolution,frames,steps,guidance,dtype,gpu,n_gpu,parallel,attn_backend,attn_params,caching,"
            "compile,timed,seconds,value_other,peak_mem_gb,speedup,baseline,solid,notes\n")
    ROWS = ('whole,sglang perf_baselines,FLUX.1-dev,1024x1024,1,50,"guidance-distilled, 1 forward a step",bf16,H100 80GB,1,none,'
            '"fa (FA3, platform default)",quality=exact,none,off,end to end (server),6.7,,33.9,,,yes,\n'
            'scaled,xDiT,HunyuanVideo,960x960,129,50,"guidance-distilled, 1 forward a step",bf16,H100,2,ulysses 2,flash-attn,,none,'
            'off,end to end,934,,,1.86,1 GPU,yes,\n'
            'cached,xDiT,FLUX.1-dev,1024x1024,1,28,,bf16,H100,1,none,FA3,,TeaCache 0.2,off,end to end,3,,,2,no cache,no,\n')

    def write(self, text):
        path = os.path.join(self.folder, "published.csv")
        with open(path, "w") as file:
            file.write(text)
        return path

    def test_rows_are_predicted_or_say_why_not(self):
        folder = os.path.join(self.folder, "out")
        done = self.tpsim("validate", "--measurements", self.write(self.HEAD + self.ROWS), "--report-dir", folder)
        self.assertEqual(done.returncode, 0, done.stderr)
        for words in ("whole", "end to end", "Could not be asked: 1 rows", "bounds, not means"):
            self.assertIn(words, done.stdout)
        with open(os.path.join(folder, "validation.json")) as file:
            found = json.load(file)
        self.assertEqual([row["id"] for row in found["rows"]], ["whole", "scaled"])
        self.assertIn("cache", found["not_asked"][0]["reason"])
        whole, scaled = found["rows"]
        for figure in (whole["seconds"], whole["peak_memory_gib"], scaled["seconds"], scaled["speedup"]):
            self.assertAlmostEqual(figure["predicted"] / figure["measured"], 1, delta=0.15)
        self.assertNotIn("peak_memory_gib", scaled)
        # The command that a row was asked by gives the row's figure.
        report = os.path.join(self.folder, "generated")
        self.assertEqual(self.tpsim("generate", *whole["command"].split(), "--report-dir", report).returncode, 0)
        with open(os.path.join(report, "report.json")) as file:
            self.assertAlmostEqual(json.load(file)["seconds"], whole["seconds"]["predicted"], places=6)

    def test_a_scenario_that_contradicts_itself_is_asked_for_its_memory_alone(self):
        """Stages that take longer than all of it, by more than SGLang's CI lets a run be slower."""
        head = self.HEAD.replace("source,", "source,where,")
        for denoising, contradicts in ((8.3, False), (8.5, True)):
            rows = "".join(
                self.ROWS.splitlines()[0].replace("whole,sglang perf_baselines,", f"{name},sglang perf_baselines,scenarios.a.{where},")
                .replace("end to end (server),6.7,,33.9", f"{timed},{seconds},,{memory}") + "\n"
                for name, where, timed, seconds, memory in (("all", "expected_e2e_ms", "end to end (server)", 6.7, 33.9),
                                                            ("loop", "stages_ms.DenoisingStage", "whole denoising loop", denoising, ""),
                                                            ("step", "expected_median_denoise_ms", "one denoising step", 0.13, "")))
            folder = os.path.join(self.folder, str(denoising))
            done = self.tpsim("validate", "--measurements", self.write(head + rows), "--report-dir", folder)
            self.assertEqual(done.returncode, 0, done.stderr)
            with open(os.path.join(folder, "validation.json")) as file:
                found = json.load(file)
            self.assertEqual([row["id"] for row in found["rows"]], ["all"] if contradicts else ["all", "loop", "step"])
            self.assertEqual("seconds" in found["rows"][0], not contradicts)
            self.assertIn("peak_memory_gib", found["rows"][0])
            reasons = [(row["id"], row["reason"]) for row in found.get("not_asked", [])]
            self.assertEqual([name for name, _ in reasons], ["all", "loop", "step"] if contradicts else [])
            self.assertTrue(all("contradicts itself" in reason for _, reason in reasons))

    def test_what_is_wrong_is_said(self):
        for row, expected in (("a,,FLUX.1-dev,,,,,,H100,none" + 13 * "," + "\n", "timed"), ("a,b\n", "columns"), ("", "no row")):
            path = self.write(self.HEAD + row)
            self.assert_refused(["validate", "--measurements", path], "published.csv:", expected)


if __name__ == "__main__":
    main()
