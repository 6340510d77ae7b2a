"""Microseconds of gpt-oss's routed experts as SGLang runs them on Hopper: OpenAI's triton_kernels with mxfp4 weights.

    PYTHONPATH=FOLDER_OF_TRITON_KERNELS python3 measure_triton_kernels.py OUT.csv [warm PART PARTS]

The package comes with sglang-kernel: 0.4.2.post2 (SGLang 0.5.12) calls it matmul_ogs, 0.4.10 (0.5.23) matmul. The
calls are those of SGLang's triton_kernels_moe.py, mxfp4.py and topk.py of the same release. `warm` compiles only, a
part of the shapes, so that several processes share the work. One row is one shape and routing:

    release,experts,tp,hidden,width,top_k,tokens,routing,hit,blocks16,blocks32,blocks64,blocks128,route,up,down,layer

`width` is of one expert on a rank, padded as SGLang pads it; `hit` and `blocks` are the experts with rows and the
blocks of so many rows that they fill; the last four are microseconds of choosing and sorting, of either product (the
second with the sum over a token's experts), and of all together, in a CUDA graph of 6 to 24 layers with other weights
or other experts each, so that the L2 holds none. Routing: same (all tokens the same four experts), balanced,
uniform (each token by chance), power_law (by chance, the n-th expert's odds n^-1.2).
"""
import csv
import statistics
import sys
import time

import torch

try:
    from triton_kernels import matmul as tk
    from triton_kernels.matmul_details.opt_flags import update_opt_flags_constraints
    RELEASE = "0.5.23"
except ImportError:
    from triton_kernels import matmul_ogs as tk
    from triton_kernels.matmul_ogs_details.opt_flags import update_opt_flags_constraints
    RELEASE = "0.5.12"
from triton_kernels.numerics import InFlexData
from triton_kernels.numerics_details.mxfp import upcast_from_mxfp
from triton_kernels.swiglu import swiglu_fn
from triton_kernels.tensor import FP4, convert_layout, make_ragged_tensor_metadata, wrap_torch_tensor
from triton_kernels.tensor_details import layout
from triton_kernels.topk import topk

NEW = RELEASE == "0.5.23"
HIDDEN, WIDTH, TOP_K = 2880, 2880, 4
TOKENS = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 1024, 2048, 4096, 8192, 16384]
WEIGHTS = 6  # layers with weights of their own


def up_to(value, step):
    return -(-value // step) * step


def swizzled(blocks, scale):
    if NEW:
        scale = torch.nn.functional.pad(scale, (0, up_to(blocks.shape[-1] * 2, 128) // 32 - scale.shape[-1]), value=127)
        values = convert_layout(wrap_torch_tensor(blocks.transpose(-2, -1), dtype=FP4),
                                layout.make_default_matmul_mxfp4_w_layout(mx_axis=-2))
        scales = convert_layout(wrap_torch_tensor(scale.transpose(-2, -1)),
                                layout.make_default_matmul_mxfp4_w_scale_layout(mx_axis=-2, num_warps=8))
        return values, tk.PrecisionConfig(b_mx_scale=scales, b_microblock_size=32,
                                          flex_ctx=tk.FlexCtx(rhs_data=InFlexData()))
    value_layout, value_options = layout.make_default_matmul_mxfp4_w_layout(mx_axis=1)
    scale_layout, scale_options = layout.make_default_matmul_mxfp4_w_scale_layout(mx_axis=1, num_warps=8)
    values = convert_layout(wrap_torch_tensor(blocks.transpose(-2, -1), dtype=FP4), value_layout, **value_options)
    scales = convert_layout(wrap_torch_tensor(scale.transpose(-2, -1)), scale_layout, **scale_options)
    return values, tk.PrecisionConfig(weight_scale=scales, flex_ctx=tk.FlexCtx(rhs_data=InFlexData()))


class Experts:
    """One layer's weights on one rank."""

    def __init__(self, experts, width, keep=False):
        def random(rows, columns):
            blocks = torch.randint(0, 256, (experts, rows, columns // 2), dtype=torch.uint8, device="cuda")
            scale = torch.randint(118, 122, (experts, rows, columns // 32), dtype=torch.uint8, device="cuda")
            bias = torch.randn(experts, rows, device="cuda")
            plain = upcast_from_mxfp(blocks, scale, torch.bfloat16, axis=-1) if keep else None
            return (*swizzled(blocks, scale), bias, plain)
        self.up, self.up_config, self.up_bias, self.up_plain = random(2 * width, HIDDEN)
        self.down, self.down_config, self.down_bias, self.down_plain = random(HIDDEN, width)


def route(logits):
    sparse = topk(logits, TOP_K, apply_softmax=True)
    there, back = sparse.mask_metadata.row_sorted_indx, sparse.mask_metadata.col_sorted_indx
    ragged = make_ragged_tensor_metadata(sparse.mask_metadata.col_sum, there.shape[0])
    scale = sparse.vals.flatten()[back]
    if NEW:
        return ragged, torch.div(back, TOP_K, rounding_mode="trunc"), back, scale
    data = tk.RoutingData(scale, ragged.slice_sizes, logits.shape[-1], TOP_K, ragged)
    return data, tk.GatherIndx(back, there), tk.ScatterIndx(there, back), scale


ACTIVATION = tk.FusedActivation(tk.FnSpecs("swiglu", swiglu_fn, ("alpha", "limit"), reduction_n=2), (1.702, 7.0))


def up(x, weights, routed):
    data, gather, _, _ = routed
    if NEW:
        return tk.matmul(x, weights.up, weights.up_bias, a_ragged_metadata=data, gather_indx=gather,
                         precision_config=weights.up_config, gammas=None, fused_activation=ACTIVATION)
    y = torch.empty((1, x.shape[0] * TOP_K, weights.up.shape[-1] // 2), device="cuda", dtype=x.dtype)
    tk.matmul_ogs(x, weights.up, weights.up_bias, data, gather_indx=gather, precision_config=weights.up_config,
                  gammas=None, fused_activation=ACTIVATION, y=y)
    return y


def down(tokens, y, weights, routed):
    data, _, scatter, scale = routed
    y = y.view(tokens * TOP_K, -1)
    if NEW:
        out = tk.matmul(y, weights.down, weights.down_bias, a_ragged_metadata=data, scatter_indx=scatter,
                        precision_config=weights.down_config, gammas=scale)
        return out.view(tokens, TOP_K, HIDDEN).sum(dim=1)
    out = torch.empty((1, tokens, HIDDEN), device="cuda", dtype=y.dtype)
    tk.matmul_ogs(y, weights.down, weights.down_bias, data, scatter_indx=scatter, precision_config=weights.down_config,
                  gammas=scale, y=out)
    return out.view(tokens, HIDDEN)


def layer(x, logits, weights):
    routed = route(logits)
    return down(x.shape[0], up(x, weights, routed), weights, routed)


def check():
    """The layer against the same in float32, on the smallest shape."""
    weights = Experts(32, 384, keep=True)
    x, logits = torch.randn(48, HIDDEN, device="cuda").bfloat16(), torch.randn(48, 32, device="cuda").bfloat16()
    chosen = logits.float().topk(TOP_K)
    want = torch.zeros(48, HIDDEN, device="cuda")
    for t in range(48):
        for share, e in zip(torch.softmax(chosen.values[t], 0), chosen.indices[t]):
            z = weights.up_plain[e].float() @ x[t].float() + weights.up_bias[e]
            gate, linear = z[::2].clamp(max=7.0), z[1::2].clamp(-7.0, 7.0)
            z = gate * torch.sigmoid(1.702 * gate) * (linear + 1)
            want[t] += share * (weights.down_plain[e].float() @ z + weights.down_bias[e])
    error = ((layer(x, logits, weights).float() - want).norm() / want.norm()).item()
    print(RELEASE, "relative error of the layer", error, flush=True)
    assert error < 2e-2


def logits_of(routing, tokens, experts, turn, generator):
    """[tokens, experts], of which each row's largest four are chosen; `turn` puts other experts in their places."""
    row = torch.arange(tokens, device="cuda")[:, None]
    expert = torch.arange(experts, device="cuda")[None, :]
    if routing == "same":
        score = -(expert.float()).expand(tokens, experts)
    elif routing == "balanced":
        score = -((expert - TOP_K * row) % experts).float()
    else:
        odds = (expert + 1.0) ** (-1.2 if routing == "power_law" else 0.0)
        noise = torch.rand(tokens, experts, device="cuda", generator=generator)
        score = torch.log(odds) - torch.log(-torch.log(noise.clamp(1e-7, 1 - 1e-7)))
        score = -score.argsort(dim=1, descending=True).argsort(dim=1).float()
    return (score.clamp(min=-64) / 4).roll(turn * TOP_K, dims=1).bfloat16().contiguous()


def microseconds(calls):
    """The median call's, all of them in one CUDA graph, replayed."""
    calls[0]()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for call in calls:
            call()
    graph.replay()
    torch.cuda.synchronize()
    times, until = [], time.time() + 0.025
    while len(times) < 4 or (time.time() < until and len(times) < 40):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end))
    return statistics.median(times) * 1e3 / len(calls)


def rows_of(experts, tp, width, tokens, routing, layers):
    generator = torch.Generator("cuda").manual_seed(tokens)
    turns = 24 if tokens <= 256 else WEIGHTS
    first = logits_of(routing, tokens, experts, 0, generator)
    inputs = [first.roll(i * TOP_K, dims=1) for i in range(turns)]
    chosen = first.float().topk(TOP_K).indices.flatten()
    counts = torch.bincount(chosen, minlength=experts)
    x = torch.randn(tokens, HIDDEN, device="cuda").bfloat16()
    routed = [route(logits) for logits in inputs]
    y = torch.randn(tokens * TOP_K, width, device="cuda").bfloat16()
    assert torch.equal(routed[0][0].slice_sizes if NEW else routed[0][0].expt_hist, counts.int())
    times = [microseconds([lambda i=i: route(inputs[i]) for i in range(turns)]),
             microseconds([lambda i=i: up(x, layers[i % WEIGHTS], routed[i]) for i in range(turns)]),
             microseconds([lambda i=i: down(tokens, y, layers[i % WEIGHTS], routed[i]) for i in range(turns)]),
             microseconds([lambda i=i: layer(x, inputs[i], layers[i % WEIGHTS]) for i in range(turns)])]
    blocks = [int((-(-counts // size)).sum()) for size in (16, 32, 64, 128)]
    return [RELEASE, experts, tp, HIDDEN, width, TOP_K, tokens, routing, int((counts > 0).sum()), *blocks,
            *(round(t, 2) for t in times)]


def main():
    update_opt_flags_constraints({"split_k": 1})
    torch.manual_seed(0)
    shapes = [(experts, tp, up_to(WIDTH // tp, 64)) for experts in (32, 128) for tp in (1, 2, 4, 8)]
    if len(sys.argv) > 2:
        part, parts = int(sys.argv[3]), int(sys.argv[4])
        weights = {(e, w): Experts(e, w) for e in (32, 128) for w in (2880, 384)}
        for tokens in TOKENS[part::parts]:
            for (experts, _), layers in weights.items():
                layer(torch.randn(tokens, HIDDEN, device="cuda").bfloat16(),
                      logits_of("uniform", tokens, experts, 0, None), layers)
        torch.cuda.synchronize()
        return
    check()
    with open(sys.argv[1], "w", newline="") as file:
        out = csv.writer(file)
        out.writerow(__doc__.split("routing:\n\n    ")[1].split("\n")[0].split(","))
        for experts, tp, width in shapes:
            layers = [Experts(experts, width) for _ in range(WEIGHTS)]
            for tokens in TOKENS:
                for routing in ("same", "balanced", "uniform", "power_law"):
                    out.writerow(rows_of(experts, tp, width, tokens, routing, layers))
                file.flush()
            print(RELEASE, experts, tp, round(time.monotonic()), flush=True)
            del layers
            torch.cuda.empty_cache()


main()
