#!/usr/bin/env python3
"""Which keys SGLang's sparse backends of diffusion pipelines meet, by its own code on a CPU, on random inputs.

    TRITON_INTERPRET=1 python3 record_diffusion_selections.py SITE_PACKAGES > diffusion_selections.jsonl

SITE_PACKAGES: where sglang 0.5.23 is unpacked. Needs torch, triton and einops. Inputs are by the rule of
diffusion_weights.py (rank/numeric/diffusion/seeded_tensor.h), so only choices are kept. Run as they are:

- vmoba_attn: the layer (backends/vmoba.py) and csrc/attn/vmoba_attn, whole, but for FlashAttention, which is written
  out here. Values are unit vectors, so that the output of a query says which keys it met.
- sla_attn: get_block_map of kernels/ops/diffusion, its pooling kernel by Triton's interpreter.
- video_sparse_attn: the order of tokens, the tiles' sizes and the top k (backends/video_sparse_attn.py). What scores
  tiles is FastVideo's package, not SGLang's, and is not run.
- sliding_tile_attn: the windows of a file by step, layer and head (mask_strategy.py). Which tiles a window has is in
  st_attn's CUDA kernel, and is not run.
- sparse_video_gen_2_attn: which steps and layers are full (denoising.py). Clusters and their choice are svg's.

Of the first three, keys that all queries treat alike are a group: `groups` has one number a key, `meets` the groups of
each query, as bits in hexadecimal.
"""
import __future__
import ast
import importlib.util
import json
import math
import pathlib
import random
import sys
import types

import torch
from diffusion_weights import unit

ROOT = pathlib.Path(sys.argv[1]) / "sglang"
BACKENDS = "multimodal_gen/runtime/layers/attention/backends"


class Stub(types.ModuleType):
    """What a file imports of SGLang and does not need here."""

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        if name == "init_logger":
            return lambda *args: types.SimpleNamespace(debug=lambda *a: None, info=lambda *a: None)
        return type(name, (), {"__getattr__": lambda self, key: key})


class Finder:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name.split(".")[0] == "sglang":
            return importlib.util.spec_from_loader(name, Finder, is_package=True)
        return None

    @staticmethod
    def create_module(spec):
        return Stub(spec.name)

    @staticmethod
    def exec_module(module):
        pass


sys.meta_path.append(Finder)


def load(path, name):
    spec = importlib.util.spec_from_file_location(name, ROOT / path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def tensor(name, seed, *shape):
    return torch.tensor([math.sqrt(3) * x for x in unit(name, math.prod(shape), seed)]).float().reshape(shape)


def flash(q, k, v, cu_seqlens_q, cu_seqlens_k, softmax_scale, **kwargs):
    out, lse = torch.empty_like(q), torch.empty(q.shape[1], q.shape[0])
    for i in range(len(cu_seqlens_q) - 1):
        rows = slice(int(cu_seqlens_q[i]), int(cu_seqlens_q[i + 1]))
        keys = slice(int(cu_seqlens_k[i]), int(cu_seqlens_k[i + 1]))
        scores = torch.einsum("qhd,khd->hqk", q[rows], k[keys]) * softmax_scale
        lse[:, rows] = scores.logsumexp(-1)
        out[rows] = torch.einsum("hqk,khd->qhd", scores.softmax(-1), v[keys])
    return out, lse, None, None


def print_case(met, **case):
    """met [queries, keys], of booleans"""
    columns = {}
    groups = [columns.setdefault(tuple(column), len(columns)) for column in met.T.tolist()]
    first = [groups.index(group) for group in range(len(columns))]
    meets = [f"{sum(bool(row[key]) << group for group, key in enumerate(first)):x}" for row in met.tolist()]
    print(json.dumps({**case, "groups": groups, "meets": meets}, separators=(",", ":")))


def vmoba():
    package = load("multimodal_gen/csrc/attn/vmoba_attn/vmoba/vmoba.py", "kernel.attn.vmoba_attn.vmoba")
    package._flash_attn_varlen_forward = flash
    package.flash_attn_varlen_func = lambda q, k, v, cu_q, cu_k, most_q, most_k, causal: flash(
        q, k, v, cu_q, cu_k, q.shape[-1] ** -0.5)[0]
    layers = load(f"{BACKENDS}/vmoba.py", "vmoba_layers")
    chooser = random.Random(22)
    for seed in range(24):
        grid = [chooser.choice(sides) for sides in ((2, 3, 4), (2, 4, 6), (4, 6))]
        tokens = math.prod(grid)
        sides = [[n for n in range(1, side + 1) if side % n == 0] for side in grid]
        config = {"temporal_chunk_size": chooser.randint(1, grid[0]), "temporal_topk": chooser.randint(1, 3),
                  "spatial_chunk_size": [chooser.choice(sides[1]), chooser.choice(sides[2])],
                  "spatial_topk": chooser.randint(1, 6), "st_chunk_size": [chooser.choice(side) for side in sides],
                  "st_topk": chooser.randint(1, 6), "moba_select_mode": chooser.choice(["threshold", "topk"]),
                  "moba_threshold": round(chooser.uniform(0, 1), 2),
                  "moba_threshold_type": chooser.choice(["query_head", "head_global"]), "first_full_step": 0,
                  "temporal_layer": chooser.randint(0, 2), "spatial_layer": chooser.randint(0, 2), "st_layer": 1}
        layer = chooser.randint(0, 11)
        attention = layers.VMOBAAttentionImpl(1, tokens, tokens ** -0.5, prefix=f"blocks.{layer}.attn1")
        q, k = (tensor(name, seed, 1, tokens, 1, tokens) for name in "qk")
        made = layers.VideoMobaAttentionMetadataBuilder().build(0, grid, (1, 1, 1), **config)
        out = attention.forward(q, k, torch.eye(tokens).reshape(1, tokens, 1, tokens), made)
        print_case(out[0, :, 0] > 0, backend="vmoba_attn", seed=seed, grid=grid, dim=tokens, layer=layer, config=config)


def sla():
    kernels = load("kernels/ops/diffusion/attention/sparse_linear_attn_triton.py", "sla_kernels")
    chooser = random.Random(23)
    for seed in range(8):
        tokens, dim = chooser.randint(200, 700), chooser.choice([16, 32])
        topk = round(chooser.uniform(0.2, 1), 2)
        q, k = (tensor(name, seed, 1, 1, tokens, dim) for name in "qk")
        blocks, _, _ = kernels.get_block_map(q, k, topk_ratio=topk, BLKQ=128, BLKK=64)
        met = blocks[0, 0].bool()[torch.arange(tokens) // 128][:, torch.arange(tokens) // 64]
        print_case(met, backend="sla_attn", seed=seed, grid=[1, 1, tokens], dim=dim, layer=0, config={"sla_topk": topk})


def video_sparse():
    layers = load(f"{BACKENDS}/video_sparse_attn.py", "vsa_layers")
    chooser = random.Random(24)
    for _ in range(12):
        grid = [chooser.randint(1, 6), chooser.randint(3, 12), chooser.randint(3, 12)]
        sparsity = round(chooser.uniform(0, 1), 2)
        made = layers.VideoSparseAttentionMetadataBuilder().build(0, grid, (1, 1, 1), sparsity, torch.device("cpu"),
                                                                  STA_param=None)
        tiles = [0] * math.prod(grid)
        order, sizes = made.tile_partition_indices.tolist(), made.variable_block_sizes.tolist()
        for tile, size in enumerate(sizes):
            for token in order[sum(sizes[:tile]):sum(sizes[:tile + 1])]:
                tiles[token] = tile
        print(json.dumps({"backend": "video_sparse_attn", "grid": grid, "sparsity": sparsity, "groups": tiles,
                          "topk": layers._compute_cur_topk(made)}, separators=(",", ":")))


def sliding_tile():
    strategy = load("multimodal_gen/runtime/layers/attention/mask_strategy.py", "mask_strategy")
    chooser = random.Random(25)
    sizes = [chooser.randint(2, 4) for _ in range(3)]
    keys = [f"{t}_{layer}_{h}" for t in range(sizes[0]) for layer in range(sizes[1]) for h in range(sizes[2])]
    chooser.shuffle(keys)
    file = {key: [chooser.randint(1, most) for most in (5, 6, 10)] for key in keys}
    print(json.dumps({"backend": "sliding_tile_attn", "file": file, "windows": strategy.dict_to_3d_list(file)},
                     separators=(",", ":")))


def svg2():
    """_build_attn_metadata of the denoising stage, and of the layer what it asks of its result."""
    path = ROOT / "multimodal_gen/runtime/pipelines_core/stages/denoising.py"
    method = next(node for node in ast.walk(ast.parse(path.read_text()))
                  if isinstance(node, ast.FunctionDef) and node.name == "_build_attn_metadata")
    layers = load(f"{BACKENDS}/sparse_video_gen_2_attn.py",
                  "sglang.multimodal_gen.runtime.layers.attention.backends.sparse_video_gen_2_attn")
    backends = types.SimpleNamespace(**{name: name for name in (
        "SLIDING_TILE_ATTN", "VIDEO_SPARSE_ATTN", "SPARSE_VIDEO_GEN_2_ATTN", "VMOBA_ATTN", "FA")})
    scope = {"AttentionBackendEnum": backends, "math": math, "torch": torch}
    exec(compile(ast.Module([method], []), str(path), "exec", __future__.annotations.compiler_flag), scope)
    flags = layers.SparseVideoGen2AttentionImpl.forward
    sparse = RuntimeError("sparse")

    def choose(*args):
        raise sparse

    layers.sdpa_kernel = lambda backend: __import__("contextlib").nullcontext()
    stage = types.SimpleNamespace(attn_backend=types.SimpleNamespace(
        get_builder_cls=lambda: layers.SparseVideoGen2AttentionMetadataBuilder,
        get_enum=lambda: "SPARSE_VIDEO_GEN_2_ATTN"))
    chooser = random.Random(26)
    for _ in range(12):
        steps, count, shift = chooser.randint(2, 50), chooser.choice([30, 40]), chooser.choice([1, 3, 5, 8])
        sigmas = [1 - i / steps for i in range(steps)]
        times = torch.tensor([1000 * shift * x / (1 + (shift - 1) * x) for x in sigmas])
        config = {"svg2_first_layers_fp": chooser.choice([0.03, 0.1, 0.5, 2.0, 7.0]),
                  "svg2_first_times_fp": round(chooser.uniform(0, 1), 2)}
        dit = types.SimpleNamespace(num_layers=count, prefix="Wan", patch_size=(1, 1, 1))
        server = types.SimpleNamespace(attention_backend_config=config,
                                       pipeline_config=types.SimpleNamespace(dit_config=dit))
        full = []
        for step in range(steps):
            batch = types.SimpleNamespace(extra={}, raw_latent_shape=(1, 1, 2))
            made = scope["_build_attn_metadata"](stage, step, batch, server, timestep_value=times[step].item(),
                                                 timesteps=times)
            for layer in range(count):
                one = types.SimpleNamespace(layer_idx=layer, semantic_aware_permutation=choose)
                x = torch.zeros(1, 2, 1, 4)
                try:
                    flags(one, x, x, x, made)
                    full.append(1)
                except RuntimeError as error:
                    if error is not sparse:
                        raise
                    full.append(0)
        print(json.dumps({"backend": "sparse_video_gen_2_attn", "steps": steps, "layers": count, "config": config,
                          "full": [sum(full[step * count:(step + 1) * count]) for step in range(steps)]},
                         separators=(",", ":")))


for record in (vmoba, sla, video_sparse, sliding_tile, svg2):
    record()
