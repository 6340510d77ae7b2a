"""Predicted against measured images: vision encoders alone, and servers, through `tpsim run`.

    python3 vision.py TPSIM [encoders|servers]

measured/h200-sxm_vision.csv: the vision modules of SGLang 0.5.12 with random weights in 16 bit on one H200, --tp 1, by
CUDA events around the whole call, the median of 9 after 3 (ms); device_ms and launches are the kernels of one more call
under PyTorch's profiler. InternVL's rows are of images that become as many tiles as were encoded.

measured/h200-sxm_image_servers.csv: SGLang 0.5.12 servers with dummy weights on one H200, `--attention-backend fa3
--enable-multimodal` and --mm-attention-backend where it is not fa3; JPEGs of smooth noise (quality 85), no two equal, and
TEXT tokens of text to /generate, IN_FLIGHT at once; `images` 0 is text alone. Of loads with one request in flight the
first, which warms the server up, is left out. Up to four servers shared the GPU, one of them serving at a time. Servers
whose name ends with fresh, and qwen3-vl-30b-a3b, were not looked at when the constants were chosen.
"""
import collections
import csv
import json
import os
import statistics
import subprocess
import sys
import tempfile


def report_of(tpsim, row, flags):
    """report.json of a run, and its requests."""
    with tempfile.TemporaryDirectory() as report:
        images = ["--dataset-name", "image", "--image-count", row["images"], "--image-resolution",
                  f"{row['height']}x{row['width']}"] if int(row["images"]) else ["--dataset-name", "random"]
        done = subprocess.run(
            [tpsim, "run", "--model-path", row["model"], "--hardware", "h200-sxm", "--sglang-version", "0.5.12",
             "--enable-multimodal", "--attention-backend", "fa3", "--mm-attention-backend", row["mm_attention_backend"],
             "--random-range-ratio", "1", "--steps", "none", "--report-dir", report] + images + flags,
            capture_output=True, text=True)
        if done.returncode:
            sys.exit(done.stderr)
        with open(os.path.join(report, "report.json")) as stream:
            return json.load(stream)


def rows_of(name):
    folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "measured")
    with open(os.path.join(folder, name)) as stream:
        return list(csv.DictReader(stream))


def print_errors(ratios, what):
    for name, list_of in sorted(ratios.items()):
        print(f"{name}: {what} {min(list_of):.2f} to {max(list_of):.2f} of the measured, median error "
              f"{100 * statistics.median(abs(r - 1) for r in list_of):.1f} %")


def encoders(tpsim):
    ratios = collections.defaultdict(list)
    for row in rows_of("h200-sxm_vision.csv"):
        report = report_of(tpsim, row, ["--random-input-len", "16", "--random-output-len", "1", "--num-prompts", "1",
                                        "--context-length", "32768", "--chunked-prefill-size", "16384"])
        predicted = 1e3 * report["ranks"][0]["encoder_seconds"]
        ratio = predicted / float(row["ms"])
        for name in (f"{row['model']} {row['mm_attention_backend']}", "all encoders"):
            ratios[name].append(ratio)
        print(f"{row['model']} {row['mm_attention_backend']} {row['images']} of {row['width']}x{row['height']}: "
              f"{predicted:.2f} of {float(row['ms']):.2f} ms (x{ratio:.3f})")
    print_errors(ratios, "time")


def servers(tpsim):
    ttft, duration = collections.defaultdict(list), collections.defaultdict(list)
    for row in rows_of("h200-sxm_image_servers.csv"):
        report = report_of(tpsim, row, ["--random-input-len", row["text"], "--random-output-len", row["output"],
                                        "--max-concurrency", row["in_flight"], "--num-prompts", row["prompts"],
                                        "--front-end", "text"])
        for figure, of in (("mean_ttft_ms", ttft), ("duration", duration)):
            measured = float(row["ttft_ms" if of is ttft else "duration_s"])
            of[row["server"] + (" with images" if int(row["images"]) else " text")].append(report[figure] / measured)
        print(f"{row['server']} {row['images']} of {row['width']}x{row['height']}, {row['text']} + {row['output']} tokens, "
              f"{row['in_flight']} in flight: mean TTFT {report['mean_ttft_ms']:.1f} of {float(row['ttft_ms']):.1f} ms "
              f"(x{report['mean_ttft_ms'] / float(row['ttft_ms']):.3f}), duration {report['duration']:.2f} of "
              f"{float(row['duration_s']):.2f} s (x{report['duration'] / float(row['duration_s']):.3f}), mean TPOT "
              f"{report['mean_tpot_ms']:.2f} of {float(row['tpot_ms']):.2f} ms")
    print_errors(ttft, "mean TTFT")
    print_errors(duration, "duration")


if __name__ == "__main__":
    which = sys.argv[2:] or ["encoders", "servers"]
    if "encoders" in which:
        encoders(sys.argv[1])
    if "servers" in which:
        servers(sys.argv[1])
