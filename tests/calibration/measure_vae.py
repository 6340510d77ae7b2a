#!/usr/bin/env python3
"""Times SGLang 0.5.23's own VAEs (random weights, eager) on one GPU, and Wan's on two, which share it by strips of rows.

    python3 measure_vae.py > ROWS                                            one GPU
    python3 -m torch.distributed.run --nproc-per-node 2 measure_vae.py > ROWS

Needs SGLang's wheel with the pure Python of what it imports; kernels of packages that are not there may be stand-ins, for VAEs
use PyTorch's and Triton's. A JSON object a row: what, model, case (element type and shape of the input), gpus, gpu, ms (of the
wall, the best of two), host_ms (until the call returns) and live_gib (allocated at the most, beyond what was before). A case
"fp32>bf16 last" has weights of fp32, runs under autocast to bf16, and its convolutions have channels last, as SGLang's loader
turns them (_should_use_channels_last_3d) and its decoding stage runs Wan's.
"""
import gc
import json
import os
import time

for name, value in dict(RANK="0", WORLD_SIZE="1", LOCAL_RANK="0", MASTER_ADDR="127.0.0.1", MASTER_PORT="29533").items():
    os.environ.setdefault(name, value)
import torch  # noqa: E402
import sglang.multimodal_gen.runtime.distributed.parallel_state as parallel  # noqa: E402
import sglang.multimodal_gen.runtime.server_args.server_args as server_args  # noqa: E402

RANK, GPUS = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


class Args:
    attention_backend, quality = "torch_sdpa", "exact"

    def __getattr__(self, name):
        return None


server_args.set_global_server_args(Args())
torch.cuda.set_device(RANK)
parallel.maybe_init_distributed_environment_and_model_parallel(tp_size=1, sp_size=GPUS, ulysses_degree=GPUS)
from sglang.multimodal_gen.configs.models.vaes.flux import Flux2VAEConfig, FluxVAEConfig  # noqa: E402
from sglang.multimodal_gen.configs.models.vaes.hunyuanvae import HunyuanVAEConfig  # noqa: E402
from sglang.multimodal_gen.configs.models.vaes.qwenimage import QwenImageVAEConfig  # noqa: E402
from sglang.multimodal_gen.configs.models.vaes.wanvae import WanVAEConfig  # noqa: E402
from sglang.multimodal_gen.runtime.models.vaes.autoencoder import AutoencoderKL  # noqa: E402
from sglang.multimodal_gen.runtime.models.vaes.autoencoder_kl_flux2 import AutoencoderKLFlux2  # noqa: E402
from sglang.multimodal_gen.runtime.models.vaes.autoencoder_kl_qwenimage import AutoencoderKLQwenImage  # noqa: E402
from sglang.multimodal_gen.runtime.models.vaes.hunyuanvae import AutoencoderKLHunyuanVideo  # noqa: E402
from sglang.multimodal_gen.runtime.models.vaes.wanvae import AutoencoderKLWan  # noqa: E402
from sglang.multimodal_gen.runtime.platforms import current_platform  # noqa: E402

TYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
KL = dict(in_channels=3, out_channels=3, down_block_types=("DownEncoderBlock2D",) * 4, up_block_types=("UpDecoderBlock2D",) * 4,
          block_out_channels=(128, 256, 512, 512), layers_per_block=2, act_fn="silu", norm_num_groups=32, sample_size=1024,
          mid_block_add_attention=True, batch_norm_eps=1e-4, batch_norm_momentum=0.1, patch_size=(2, 2))
QWEN = dict(base_dim=96, z_dim=16, dim_mult=(1, 2, 4, 4), num_res_blocks=2, attn_scales=(), dropout=0.0, input_channels=3,
            temperal_downsample=(False, True, True), latents_mean=(0.0,) * 16, latents_std=(1.0,) * 16)
FIVE = dict(base_dim=160, decoder_base_dim=256, z_dim=48, is_residual=True, in_channels=12, out_channels=12, patch_size=2,
            scale_factor_spatial=16, latents_mean=(0.0,) * 48, latents_std=(1.0,) * 48)


def timed(call):
    torch.distributed.barrier()
    torch.cuda.synchronize()
    begin = time.perf_counter()
    call()
    returned = time.perf_counter()
    torch.cuda.synchronize()
    return time.perf_counter() - begin, returned - begin


@torch.no_grad()
def measure(model, cls, config, changes, how, decoded=(), encoded=()):
    dtype, _, autocast = how.removesuffix(" last").partition(">")
    for name, value in changes.items():
        setattr(config.arch_config, name, value)
    torch.set_default_dtype(TYPES[dtype])
    with torch.device("cuda"):
        vae = cls(config)
    torch.set_default_dtype(torch.float32)
    for parameter in vae.parameters():
        if parameter.dim() > 1:
            parameter.data.normal_(0, 0.02)
    vae = current_platform.optimize_vae(vae.to("cuda", TYPES[dtype]).eval())
    if how.endswith(" last"):
        for module in vae.modules():
            if isinstance(module, torch.nn.Conv3d):
                module.weight.data = module.weight.data.to(memory_format=torch.channels_last_3d)
    torch.set_autocast_dtype("cuda", TYPES[autocast or "bf16"])
    torch.set_autocast_enabled("cuda", bool(autocast))
    for what, shapes in (("decode", decoded), ("encode", encoded)):
        for shape in shapes:
            x = torch.randn(1, *shape, device="cuda", dtype=TYPES[dtype])
            call = lambda: getattr(vae, what)(x)  # noqa: E731
            call()
            gc.collect()
            torch.cuda.empty_cache()
            before = torch.cuda.memory_allocated()
            torch.cuda.reset_peak_memory_stats()
            wall, host = min(timed(call) for _ in range(2))
            if RANK == 0:
                print(json.dumps({"what": f"vae {what}", "model": model, "case": f"{how} " + "x".join(map(str, shape)),
                                  "gpus": GPUS, "gpu": torch.cuda.get_device_name(0), "ms": round(1e3 * wall, 1),
                                  "host_ms": round(1e3 * host, 1),
                                  "live_gib": round((torch.cuda.max_memory_allocated() - before) / 2**30, 3)}), flush=True)


SIZES = [(16, 6, 60, 104), (16, 7, 78, 78), (16, 7, 120, 120), (16, 6, 90, 160)]
ENCODED = [(3, 25, 624, 624), (3, 25, 960, 960)]
measure("wan2.1", AutoencoderKLWan, WanVAEConfig(), {}, "bf16", [*SIZES, (16, 21, 60, 104)])
measure("wan2.1", AutoencoderKLWan, WanVAEConfig(), {}, "fp32", [SIZES[0], SIZES[3]], ENCODED)
measure("wan2.1", AutoencoderKLWan, WanVAEConfig(), {}, "fp32>bf16 last", [(16, 1, 60, 104), *SIZES, (16, 21, 60, 104)])
measure("wan2.1", AutoencoderKLWan, WanVAEConfig(), {}, "fp32 last", [SIZES[0], SIZES[3]], ENCODED if GPUS == 1 else [])
if GPUS == 1:
    for how in ("fp32", "fp32 last", "fp32>bf16 last"):
        measure("wan2.2-5b", AutoencoderKLWan, WanVAEConfig(), FIVE, how, [(48, 6, 44, 80), (48, 7, 58, 60)])
    for model, cls, config, latents in (("flux", AutoencoderKL, FluxVAEConfig(), 16), ("flux2", AutoencoderKLFlux2, Flux2VAEConfig(), 32)):
        changes = dict(KL, latent_channels=latents, use_quant_conv=latents == 32, use_post_quant_conv=latents == 32)
        measure(model, cls, config, changes, "bf16", [(latents, 128, 128)], [(3, 1024, 1024)])
    for how in ("bf16", "bf16 last"):
        measure("qwen-image", AutoencoderKLQwenImage, QwenImageVAEConfig(), QWEN, how, [(16, 1, 128, 128)], [(3, 1, 1024, 1024)])
    measure("hunyuan-video", AutoencoderKLHunyuanVideo, HunyuanVAEConfig(), {}, "fp16>fp16", [(16, 6, 90, 160), (16, 9, 60, 104)])
os._exit(0)
