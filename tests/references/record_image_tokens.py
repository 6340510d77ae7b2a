#!/usr/bin/env python3
"""Records how many tokens and encoder rows the processors of Transformers (and, for InternVL, SGLang's own) make of
images of random sizes: tests/golden/image_tokens.json, which tests/unit/rank/config/image_layout_test.cc compares with.

Usage: record_image_tokens.py SGLANG FILE      SGLANG: the folder sglang of a release; FILE: the JSON to write

Needs torch, transformers, torchvision and Pillow. The file in the repository was made with Transformers 5.23 and
SGLang 0.5.23.
"""

import ast
import json
import math
import random
import sys
import types

import torch
from transformers.image_utils import SizeDict
from transformers.models.got_ocr2 import image_processing_got_ocr2 as got
from transformers.models.llama4 import image_processing_llama4 as llama4
from transformers.models.llama4.processing_llama4 import Llama4Processor
from transformers.models.qwen2_vl import image_processing_qwen2_vl as qwen
from transformers.vision_utils import get_vision_window_index

FIXED = [(448, 448), (336, 336), (1080, 1920), (2160, 3840), (720, 1280), (360, 640), (28, 28), (1, 1), (896, 448),
         (30, 5000), (4000, 4000), (337, 336), (56, 56), (70, 42), (1344, 1344)]
RANDOM = 60


def sizes():
    random.seed(9)
    drawn = [(int(math.exp(random.uniform(2, 8.6))), int(math.exp(random.uniform(2, 8.6)))) for _ in range(RANDOM)]
    return FIXED + [size for size in drawn if max(size) / min(size) < 190]


def windows_of(rows, columns):
    """Lengths of Qwen2.5-VL's windows in patches, sorted."""
    _, ends = get_vision_window_index(torch.tensor([[1, rows, columns]]), 2, 112, 14)
    ends = torch.unique_consecutive(torch.as_tensor(ends)).tolist()
    return sorted(b - a for a, b in zip(ends, ends[1:]))


def smart(height, width, patch, least, most):
    rows, columns = (side // patch for side in qwen.smart_resize(height, width, 2 * patch, least, most))
    return rows, columns


def llama(height, width):
    resolutions = torch.tensor(llama4.find_supported_resolutions(16, SizeDict(height=336, width=336)))
    rows, columns = (int(side) // 336 for side in llama4.get_best_fit((height, width), resolutions))
    text = Llama4Processor._prompt_split_image(None, (rows, columns), 144)
    return {"tiles": rows * columns + (rows * columns > 1), "prompt": text.count("<|"),
            "embedded": text.count("<|patch|>")}


def sglang_tiles(root):
    """InternVL's dynamic_preprocess of SGLang, without what it imports; only the number of its tiles is wanted."""
    source = open(root + "/srt/multimodal/processors/internvl.py").read()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef) and node.name == "dynamic_preprocess":
            node.decorator_list = []
            node.args.defaults = [ast.Constant(448), ast.Constant(12), ast.Constant(False)]
            module = ast.fix_missing_locations(ast.Module([node], []))
            names = {"torch": types.SimpleNamespace(
                nn=types.SimpleNamespace(functional=types.SimpleNamespace(
                    interpolate=lambda image, size, **_: torch.empty((1, 1, *size), device="meta"))),
                stack=lambda tiles: torch.stack(tiles), bfloat16=torch.bfloat16)}
            exec(compile(module, "internvl", "exec"), names)
            function = names["dynamic_preprocess"]
            return lambda height, width: len(function(torch.empty((1, height, width), device="meta"), 448, 12, True))
    raise SystemExit("no dynamic_preprocess in " + root)


def transformers_tiles(height, width):
    columns, rows = got.get_optimal_tiled_canvas((height, width), (448, 448), 1, 12)
    return columns * rows + (columns * rows > 1)


def main():
    tiles_of = sglang_tiles(sys.argv[1])
    records = []
    for height, width in sizes():
        rows, columns = smart(height, width, 14, 56 * 56, 16384 * 28 * 28)
        record = {"height": height, "width": width,
                  "qwen2.5-vl-7b": {"rows": rows, "columns": columns},
                  "llama-4-scout": llama(height, width),
                  "internvl": {"sglang": tiles_of(height, width), "transformers": transformers_tiles(height, width)}}
        if rows * columns <= 4000:
            record["qwen2.5-vl-7b"]["windows"] = windows_of(rows, columns)
        rows, columns = smart(height, width, 16, 65536, 16777216)
        record["qwen3-vl"] = {"rows": rows, "columns": columns}
        records.append(record)
    with open(sys.argv[2], "w") as file:
        file.write("[" + ",\n".join(json.dumps(record, separators=(",", ":")) for record in records) + "]\n")


main()
