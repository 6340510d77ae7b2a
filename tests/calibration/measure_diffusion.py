#!/usr/bin/env python3
"""Times the parts of diffusion pipelines on one GPU, with random weights and without SGLang: attention of whole
sequences, matrix products, VAEs, text encoders, copies between host and device, and whole transformers of Diffusers
(whose unfused small kernels SGLang's own do not have, but whose attention and products are the same).

    python3 measure_diffusion.py OUT.json SECONDS     # PyTorch 2.11, transformers, Diffusers 0.42.1 on PYTHONPATH

One object a row: what, model, case, ms (median), runs, and of modules kernels, attention_ms, gemm_ms, convolution_ms,
other_ms (sums over a profile) and peak_gb.
"""
import gc
import json
import os
import statistics
import sys
import time

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.profiler import ProfilerActivity, profile

OUT, LIMIT = sys.argv[1], float(sys.argv[2])
BEGAN = time.time()
BF16 = torch.bfloat16
rows = []
GPU = torch.cuda.get_device_name(0)


def left():
    return LIMIT - (time.time() - BEGAN)


def timed(call, times):
    call()
    torch.cuda.synchronize()
    runs = []
    for _ in range(times):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        call()
        end.record()
        end.synchronize()
        runs.append(start.elapsed_time(end))
    return runs


def kind(name):
    name = name.lower()
    if any(word in name for word in ("flash", "fmha", "sdpa", "cudnn_generated")):
        return "attention_ms"
    if any(word in name for word in ("conv", "fprop", "implicit", "nhwc", "nchw", "xmma", "winograd")):
        return "convolution_ms"
    if any(word in name for word in ("gemm", "nvjet", "cutlass", "matmul", "cublas")):
        return "gemm_ms"
    return "other_ms"


def profiled(call):
    with profile(activities=[ProfilerActivity.CUDA]) as trace:
        call()
        torch.cuda.synchronize()
    sums, count, names = dict(attention_ms=0, gemm_ms=0, convolution_ms=0, other_ms=0), 0, {}
    for event in trace.events():
        if event.device_type != torch.autograd.DeviceType.CUDA:
            continue
        count += 1
        sums[kind(event.name)] += event.device_time_total / 1e3
        names[event.name[:70]] = names.get(event.name[:70], 0) + event.device_time_total / 1e3
    top = sorted(((round(ms, 2), name) for name, ms in names.items()), reverse=True)[:6]
    return {**{name: round(ms, 3) for name, ms in sums.items()}, "kernels": count, "top": top}


def measure(what, model, case, call, times=3, detail=True):
    if left() < 5:
        return
    try:
        torch.cuda.reset_peak_memory_stats()
        with torch.no_grad():
            runs = timed(call, times)
            row = dict(what=what, model=model, case=case, gpu=GPU, ms=round(statistics.median(runs), 4),
                       runs=[round(run, 4) for run in runs], peak_gb=round(torch.cuda.max_memory_allocated() / 1e9, 2))
            if detail:
                row.update(profiled(call))
    except Exception as error:  # the others are still worth their time
        row = dict(what=what, model=model, case=case, gpu=GPU, error=repr(error)[:300])
    rows.append(row)
    print("%.0f" % (time.time() - BEGAN), {k: v for k, v in row.items() if k not in ("top", "runs", "gpu")}, flush=True)
    with open(OUT, "w") as file:
        json.dump(rows, file)


def free():
    gc.collect()
    torch.cuda.empty_cache()


def build(make, dtype=BF16):
    """A module with random weights of the size that trained ones have: others would overflow, and zeros run faster."""
    torch.set_default_dtype(dtype)
    try:
        with torch.device("cuda"):
            module = make()
    finally:
        torch.set_default_dtype(torch.float32)
    generator = torch.Generator(device="cuda").manual_seed(1)
    for parameter in module.parameters():
        parameter.requires_grad_(False)
        if parameter.dim() > 1:
            parameter.data.normal_(0, 0.02, generator=generator)
    return module.eval().to(dtype)


def normal(*shape, dtype=BF16):
    return torch.randn(*shape, device="cuda", dtype=dtype)


def attention():
    for name, backend in (("flash", SDPBackend.FLASH_ATTENTION), ("cudnn", SDPBackend.CUDNN_ATTENTION)):
        for heads, queries, keys in ((24, 1024, 1024), (24, 4608, 4608), (40, 7800, 7800), (12, 9360, 9360),
                                     (24, 16896, 16896), (40, 32760, 32760), (5, 32760, 32760), (40, 32760, 512),
                                     (12, 9360, 512), (30, 4128, 4128), (24, 75600, 75600)):
            q, k, v = normal(1, heads, queries, 128), normal(1, heads, keys, 128), normal(1, heads, keys, 128)

            def call():
                with sdpa_kernel(backend):
                    torch.nn.functional.scaled_dot_product_attention(q, k, v)
            measure("attention", name, f"{heads}x128 {queries}x{keys}", call, 5, detail=False)
    free()


def products():
    for m, n, k in ((32760, 5120, 5120), (32760, 13824, 5120), (32760, 5120, 13824), (9360, 8960, 1536), (9360, 1536, 1536),
                    (4608, 12288, 3072), (4608, 3072, 15360), (4608, 21504, 3072), (4224, 10240, 3840)):
        a, b = normal(m, k), normal(n, k)

        def many():
            for _ in range(40):
                torch.nn.functional.linear(a, b)
        measure("gemm", "linear x40", f"{m}x{n}x{k}", many, 3, detail=False)
    free()


def copies():
    for size in (64 << 20, 1 << 30):
        host, device = torch.empty(size, dtype=torch.uint8, pin_memory=True), torch.empty(size, dtype=torch.uint8, device="cuda")
        measure("copy", "pinned to device", str(size), lambda: device.copy_(host, non_blocking=True), 5, detail=False)
        measure("copy", "device to pinned", str(size), lambda: host.copy_(device, non_blocking=True), 5, detail=False)
        paged = torch.ones(size, dtype=torch.uint8)
        measure("copy", "pageable to device", str(size), lambda: device.copy_(paged), 3, detail=False)


def vaes():
    import diffusers as d
    flux = dict(in_channels=3, out_channels=3, down_block_types=("DownEncoderBlock2D",) * 4,
                up_block_types=("UpDecoderBlock2D",) * 4, block_out_channels=(128, 256, 512, 512), layers_per_block=2,
                latent_channels=16, norm_num_groups=32, use_quant_conv=False, use_post_quant_conv=False)
    wan22 = dict(base_dim=160, decoder_base_dim=256, z_dim=48, is_residual=True, in_channels=12, out_channels=12, patch_size=2,
                 scale_factor_spatial=16, latents_mean=[0.0] * 48, latents_std=[1.0] * 48)
    cases = [
        ("flux", lambda: d.AutoencoderKL(**flux), [(16, 64, 64), (16, 128, 128)], [(3, 1024, 1024)]),
        ("flux2", lambda: d.AutoencoderKLFlux2(), [(32, 128, 128)], [(3, 1024, 1024)]),
        ("qwen-image", lambda: d.AutoencoderKLQwenImage(), [(16, 1, 128, 128)], [(3, 1, 1024, 1024)]),
        ("wan2.1", lambda: d.AutoencoderKLWan(), [(16, 1, 60, 104), (16, 6, 60, 104), (16, 21, 60, 104)], [(3, 17, 480, 832)]),
        ("wan2.2-5b", lambda: d.AutoencoderKLWan(**wan22), [(48, 6, 44, 80)], [(3, 1, 704, 1280)]),
        ("hunyuan-video", lambda: d.AutoencoderKLHunyuanVideo(), [(16, 5, 60, 104)], []),
        ("ltx-2", lambda: d.AutoencoderKLLTX2Video(), [(128, 4, 16, 24)], []),
    ]
    for dtype in (BF16, torch.float32):
        for name, make, decoded, encoded in cases:
            if left() < 20 or (dtype != BF16 and name not in ("wan2.1", "wan2.2-5b", "flux")):
                continue
            try:
                vae = build(make, dtype)
            except Exception as error:
                print(name, "not built", repr(error)[:300], flush=True)
                continue
            word = "bf16" if dtype == BF16 else "fp32"
            for shape in decoded:
                z = normal(1, *shape, dtype=dtype)
                measure("vae decode", name, f"{word} {'x'.join(map(str, shape))}", lambda: vae.decode(z, return_dict=False), 2)
            for shape in encoded:
                x = normal(1, *shape, dtype=dtype)
                measure("vae encode", name, f"{word} {'x'.join(map(str, shape))}", lambda: vae.encode(x, return_dict=False), 2)
            del vae
            free()


def encoders():
    import transformers as t
    t5 = dict(d_model=4096, d_ff=10240, d_kv=64, num_heads=64, num_layers=24, feed_forward_proj="gated-gelu",
              is_encoder_decoder=False, use_cache=False)

    def causal(config, model, layers, hidden, inter, heads, kv, dim, vocab, **more):
        return lambda: model(config(num_hidden_layers=layers, hidden_size=hidden, intermediate_size=inter, vocab_size=vocab,
                                    num_attention_heads=heads, num_key_value_heads=kv, head_dim=dim, use_cache=False, **more))
    cases = [
        ("t5-xxl", lambda: t.T5EncoderModel(t.T5Config(vocab_size=32128, **t5)), (512,)),
        ("umt5-xxl", lambda: t.UMT5EncoderModel(t.UMT5Config(vocab_size=256384, **t5)), (512,)),
        ("clip-l", lambda: t.CLIPTextModel(t.CLIPTextConfig(hidden_size=768, intermediate_size=3072, num_hidden_layers=12,
                                                            num_attention_heads=12)), (77,)),
        ("qwen2.5-7b", causal(t.Qwen2Config, t.Qwen2Model, 28, 3584, 18944, 28, 4, 128, 152064), (64, 1024)),
        ("qwen3-4b", causal(t.Qwen3Config, t.Qwen3Model, 36, 2560, 9728, 32, 8, 128, 151936), (64, 512)),
        ("llama-3-8b", causal(t.LlamaConfig, t.LlamaModel, 32, 4096, 14336, 32, 8, 128, 128320), (351,)),
        ("mistral3-24b", causal(t.MistralConfig, t.MistralModel, 40, 5120, 32768, 32, 8, 128, 131072), (512,)),
        ("gemma3-12b", lambda: t.Gemma3TextModel(t.Gemma3TextConfig(num_hidden_layers=48, hidden_size=3840,
                                                                    intermediate_size=15360, num_attention_heads=16,
                                                                    num_key_value_heads=8, head_dim=256, use_cache=False)),
         (1024,)),
    ]
    for name, make, lengths in cases:
        if left() < 15:
            return
        try:
            model = build(make)
        except Exception as error:
            print(name, "not built", repr(error)[:300], flush=True)
            continue
        for length in lengths:
            ids = torch.randint(0, 30000, (1, length), device="cuda")
            mask = torch.ones_like(ids)
            measure("encoder", name, f"1x{length}", lambda: model(input_ids=ids, attention_mask=mask), 5)
        if name == "umt5-xxl":  # as Wan loads it
            model = model.float()
            measure("encoder", name, "1x512 fp32", lambda: model(input_ids=ids, attention_mask=mask), 5)
        del model
        free()


def transformers_of_diffusers():
    import diffusers as d

    def qwen(side, text):
        return lambda m: m(hidden_states=normal(1, (side // 16) ** 2, 64), encoder_hidden_states=normal(1, text, 3584),
                           timestep=torch.full((1,), 0.5, device="cuda", dtype=BF16),
                           img_shapes=[[(1, side // 16, side // 16)]], return_dict=False)

    def zimage(side, text):
        return lambda m: m([normal(16, 1, side // 8, side // 8)], torch.full((1,), 0.5, device="cuda", dtype=BF16),
                           [normal(text, 2560)], return_dict=False)

    def ids(count, axes):
        out = torch.zeros(count, axes, device="cuda")
        out[:, -1] = torch.arange(count, device="cuda")
        return out

    def flux2(side, text):
        n = (side // 16) ** 2
        return lambda m: m(hidden_states=normal(1, n, 128), encoder_hidden_states=normal(1, text, m.config.joint_attention_dim),
                           timestep=torch.full((1,), 0.5, device="cuda", dtype=BF16), img_ids=ids(n, 4)[None],
                           txt_ids=ids(text, 4)[None], guidance=torch.full((1,), 4.0, device="cuda", dtype=BF16),
                           return_dict=False)

    def hunyuan(frames, rows, columns):
        return lambda m: m(hidden_states=normal(1, 16, frames, rows, columns),
                           timestep=torch.full((1,), 500.0, device="cuda", dtype=BF16), encoder_hidden_states=normal(1, 256, 4096),
                           encoder_attention_mask=torch.ones(1, 256, device="cuda", dtype=torch.bool),
                           pooled_projections=normal(1, 768), guidance=torch.full((1,), 6000.0, device="cuda", dtype=BF16),
                           return_dict=False)

    def sd3(side):
        return lambda m: m(hidden_states=normal(1, 16, side // 8, side // 8), encoder_hidden_states=normal(1, 333, 4096),
                           pooled_projections=normal(1, 2048), timestep=torch.full((1,), 500.0, device="cuda", dtype=BF16),
                           return_dict=False)

    def wan(channels, frames, rows, columns):
        return lambda m: m(hidden_states=normal(1, channels, frames, rows, columns), encoder_hidden_states=normal(1, 512, 4096),
                           timestep=torch.full((1,), 500.0, device="cuda", dtype=BF16), return_dict=False)

    def ltx2(frames, rows, columns):
        def call(m):
            n = frames * rows * columns
            return m(hidden_states=normal(1, n, 128), audio_hidden_states=normal(1, 32, 128),
                     encoder_hidden_states=normal(1, 1024, 3840), audio_encoder_hidden_states=normal(1, 1024, 3840),
                     timestep=torch.full((1,), 500.0, device="cuda", dtype=BF16), num_frames=frames, height=rows, width=columns,
                     fps=24.0, audio_num_frames=32, return_dict=False)
        return call
    small = dict(num_attention_heads=24, attention_head_dim=128, in_channels=48, out_channels=48, ffn_dim=14336, num_layers=30)
    cases = [
        ("z-image-turbo", lambda: d.ZImageTransformer2DModel(), [("1024", zimage(1024, 64))]),
        ("qwen-image", lambda: d.QwenImageTransformer2DModel(), [("1024", qwen(1024, 64))]),
        ("flux.2-klein-4b", lambda: d.Flux2Transformer2DModel(num_layers=5, num_single_layers=20, num_attention_heads=24,
                                                            joint_attention_dim=7680, guidance_embeds=False),
         [("1024", flux2(1024, 512))]),
        ("sd3.5-large", lambda: d.SD3Transformer2DModel(num_layers=38, num_attention_heads=38, caption_projection_dim=2432,
                                                       out_channels=16, in_channels=16, sample_size=128, pos_embed_max_size=192,
                                                       qk_norm="rms_norm", joint_attention_dim=4096), [("1024", sd3(1024))]),
        ("wan2.2-ti2v-5b", lambda: d.WanTransformer3DModel(**small), [("704p 6", wan(48, 6, 44, 80))]),
        ("hunyuanvideo", lambda: d.HunyuanVideoTransformer3DModel(), [("480p 5", hunyuan(5, 60, 104))]),
        ("ltx-2", lambda: d.LTX2VideoTransformer3DModel(), [("512p 4", ltx2(4, 16, 24))]),
        ("flux.2-dev", lambda: d.Flux2Transformer2DModel(), [("1024", flux2(1024, 512))]),
    ]
    for name, make, shapes in cases:
        if left() < 25:
            return
        try:
            model = build(make)
            print(name, "%.3f G parameters" % (sum(p.numel() for p in model.parameters()) / 1e9), flush=True)
        except Exception as error:
            print(name, "not built", repr(error)[:300], flush=True)
            free()
            continue
        for case, call in shapes:
            for word, backend in (("flash", SDPBackend.FLASH_ATTENTION), ("cudnn", SDPBackend.CUDNN_ATTENTION)):
                def one():
                    with sdpa_kernel([backend, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH], set_priority=True):
                        call(model)
                measure("transformer", name, f"{case} {word}", one, 3)
        del model
        free()


for part in (attention, products, copies, vaes, encoders, transformers_of_diffusers):
    try:
        part()
    except Exception as error:
        print(part.__name__, "ended", repr(error)[:500], flush=True)
print("end %.0f s" % (time.time() - BEGAN), os.path.getsize(OUT), "bytes")
