"""Predicted against measured vision encoders: `tpsim run` on measured/h200-sxm_vision.csv.

    python3 vision.py TPSIM

The encoders ran alone on one H200: the modules of SGLang 0.5.12 with random weights in 16 bit, at --tp 1, by CUDA events
around the whole call, the median of 9 after 3 (ms); device_ms and launches are the kernels of one more call under
PyTorch's profiler. InternVL's rows are of images that become as many tiles as were encoded.
"""
import collections
import csv
import json
import os
import statistics
import subprocess
import sys
import tempfile


def encoder_seconds(tpsim, row):
    with tempfile.TemporaryDirectory() as report:
        done = subprocess.run(
            [tpsim, "run", "--model-path", row["model"], "--hardware", "h200-sxm", "--sglang-version", "0.5.12",
             "--enable-multimodal", "--attention-backend", "fa3", "--mm-attention-backend", row["mm_attention_backend"],
             "--dataset-name", "image", "--image-count", row["images"], "--image-resolution",
             f"{row['height']}x{row['width']}", "--random-input-len", "16", "--random-output-len", "1",
             "--random-range-ratio", "1", "--num-prompts", "1", "--steps", "none", "--context-length", "65536",
             "--chunked-prefill-size", "65536", "--report-dir", report], capture_output=True, text=True)
        if done.returncode:
            sys.exit(done.stderr)
        with open(os.path.join(report, "report.json")) as stream:
            return json.load(stream)["ranks"][0]["encoder_seconds"]


def main():
    folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "measured")
    ratios = collections.defaultdict(list)
    with open(os.path.join(folder, "h200-sxm_vision.csv")) as stream:
        for row in csv.DictReader(stream):
            predicted = 1e3 * encoder_seconds(sys.argv[1], row)
            ratio = predicted / float(row["ms"])
            ratios[row["model"], row["mm_attention_backend"]].append(ratio)
            print(f"{row['model']} {row['mm_attention_backend']} {row['images']} of {row['width']}x{row['height']}: "
                  f"{predicted:.2f} of {float(row['ms']):.2f} ms (x{ratio:.3f})")
    for (model, backend), list_of in sorted(ratios.items()):
        print(f"{model} {backend}: {min(list_of):.2f} to {max(list_of):.2f}, median error "
              f"{100 * statistics.median(abs(r - 1) for r in list_of):.1f} %")
    every = [abs(r - 1) for list_of in ratios.values() for r in list_of]
    print(f"all: median error {100 * statistics.median(every):.1f} %")


if __name__ == "__main__":
    main()
