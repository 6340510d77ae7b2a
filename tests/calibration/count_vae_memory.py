#!/usr/bin/env python3
"""Counts what SGLang 0.5.23's VAEs of Wan, Qwen-Image and HunyuanVideo hold beside their weights, on a CPU: the
classes run on PyTorch's fake tensors, each storage counts while it lives, and cuDNN's workspace is a turned copy of a
convolution's input and output where neither it nor its weights have channels last.

    PYTHONPATH=WHEELS count_vae_memory.py     a line a case: MiB, and of the largest frame of the finest level

Needs PyTorch, Diffusers, Transformers, addict and SGLang's wheel; what else is imported and not there, and Triton's
kernels, are stand-ins that allocate what those do. It agrees with what was measured on H100s and H200s
(measured/h100-sxm_vae.json, live_gib) within 0.3 % on one GPU and 3 % on two; rank/diffusion/vae.cc has what is served.
"""
import importlib.abc
import importlib.machinery
import os
import sys
import types
import weakref

os.environ.update(RANK="0", WORLD_SIZE="1", LOCAL_RANK="0", MASTER_ADDR="127.0.0.1", MASTER_PORT="29533")
KNOWN = {"cache_dit", "cutlass", "deep_gemm", "flashinfer", "imageio", "moviepy", "nvtx", "outlines", "pybase64", "remote_pdb",
         "sgl_kernel", "soundfile", "tvm_ffi", "uvloop", "xgrammar", "sglang.kernels", "sglang.jit_kernel", "sglang.srt.layers",
         "sglang.srt.platforms"}


class Empty(type):
    def __getattr__(cls, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return cls

    def __call__(cls, *args, **kwargs):
        return args[0] if len(args) == 1 and callable(args[0]) else cls

    __getitem__ = __or__ = __ror__ = lambda cls, other: cls
    __bool__ = lambda cls: False  # noqa: E731


class Missing(types.ModuleType):
    __path__, __version__ = [], "99.0"

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Empty(name, (), {})


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path=None, target=None):
        if any(name == known or name.startswith(known + ".") for known in KNOWN):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec):
        return Missing(spec.name)

    def exec_module(self, module):
        pass


sys.meta_path.insert(0, Finder())
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402
from torch.utils._pytree import tree_iter  # noqa: E402
import sglang.multimodal_gen.runtime.server_args.server_args as server_args  # noqa: E402


class Args:
    attention_backend, quality = "torch_sdpa", "exact"
    __getattr__ = lambda self, name: None  # noqa: E731


server_args.set_global_server_args(Args())
from sglang.multimodal_gen.runtime.platforms import current_platform  # noqa: E402

type(current_platform).is_cuda = type(current_platform).is_amp_supported = classmethod(lambda cls: True)
from sglang.multimodal_gen.configs.models.vaes.hunyuanvae import HunyuanVAEConfig  # noqa: E402
from sglang.multimodal_gen.configs.models.vaes.qwenimage import QwenImageVAEConfig  # noqa: E402
from sglang.multimodal_gen.configs.models.vaes.wanvae import WanVAEConfig  # noqa: E402
import sglang.multimodal_gen.runtime.layers.parallel_conv as parallel_conv  # noqa: E402
import sglang.multimodal_gen.runtime.models.vaes.autoencoder_kl_qwenimage as qwen  # noqa: E402
import sglang.multimodal_gen.runtime.models.vaes.hunyuanvae as hunyuan  # noqa: E402
import sglang.multimodal_gen.runtime.models.vaes.wanvae as wan  # noqa: E402

LAST = {4: torch.channels_last, 5: torch.channels_last_3d}
MIB = 2 ** 20


def last(tensor):
    return tensor.is_contiguous(memory_format=LAST[tensor.dim()]) and not tensor.is_contiguous()


def strides_last(shape):
    strides, channels = [0] * len(shape), shape[1]
    step = channels
    for dim in range(len(shape) - 1, 1, -1):
        strides[dim] = step
        step *= shape[dim]
    strides[0], strides[1] = step, 1
    return strides


def size(tensor):
    return tensor.numel() * tensor.element_size()


class Counter(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.live, self.now, self.peak = {}, 0, 0

    def track(self, tensor):
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key not in self.live:
            self.live[key] = (storage.nbytes() + 511) // 512 * 512
            self.now += self.live[key]
            self.peak = max(self.peak, self.now)
            weakref.finalize(storage, lambda: setattr(self, "now", self.now - self.live.pop(key, 0)))

    def __torch_dispatch__(self, func, kinds, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        convolves = "convolution" in str(func)
        if convolves and (last(args[0]) or last(args[1])):
            out = torch.empty_strided(out.shape, strides_last(out.shape), dtype=out.dtype, device=out.device)
        for tensor in tree_iter(out):
            if isinstance(tensor, torch.Tensor):
                self.track(tensor)
        if convolves and out.is_contiguous():
            self.peak = max(self.peak, self.now + size(args[0]) + size(out))
        return out


# --- what Triton's kernels allocate ---
def empty_last(shape, like):
    return torch.empty_strided(shape, strides_last(shape), dtype=like.dtype, device=like.device)


def padded(x, padding):
    batch, channels, frames, height, width = x.shape
    return batch, channels, padding[4] + frames, height + 2 * padding[2], width + 2 * padding[0]


def cat_pad(x, cache, padding, keep_cache_t=0):
    batch, channels, frames, height, width = x.shape
    if cache is not None and (cache.dtype != x.dtype or cache.shape[3:] != x.shape[3:] or cache.shape[2] > padding[4]):
        return None
    out = empty_last(padded(x, padding), x)
    kept = min(keep_cache_t, padding[4] + frames)
    return (out, empty_last((batch, channels, kept, height, width), x)) if keep_cache_t else out


def fused(x, bias, residual=None):
    return last(x) and bias.dtype in (x.dtype, torch.float32) and (
        residual is None or (residual.dtype == x.dtype and residual.stride() == x.stride()))


for module in (wan, qwen):
    for name, kernel in dict(cat_pad_channels_last_3d=cat_pad, can_use_conv_bias_epilogue=fused,
                             conv_bias_epilogue=lambda x, bias, residual=None: torch.empty_like(x),
                             dup_up3d_add=lambda x, *rest: torch.empty_like(x)).items():
        if hasattr(module, name):
            setattr(module, name, kernel)
parallel_conv.cat_pad_channels_last_3d = cat_pad
parallel_conv.fused_causal_conv3d_cat_pad = lambda x, cache, padding: torch.empty(
    padded(x, padding), dtype=x.dtype, device=x.device)
hunyuan.apply_group_norm_silu = lambda x, norm, act: torch.empty_like(x)


# --- the first of several GPUs ---
class Group:
    rank_in_group, device_group, cpu_group = 0, None, None

    def __init__(self, gpus):
        self.world_size, self.ranks = gpus, list(range(gpus))

    def all_gather(self, x, dim=-1):
        shape = list(x.shape)
        shape[dim] *= self.world_size
        self.flat = torch.empty([self.world_size, *x.shape], dtype=x.dtype, device=x.device)
        del self.flat
        return torch.empty(shape, dtype=x.dtype, device=x.device)


def attend(self, x):
    if self.world_size == 1 or wan.spatial_parallel_decode_disabled():
        return wan.attention_block_forward(self, x)
    x = wan.gather_height_for_global_op(x, parallel_group=self.parallel_group).contiguous()
    return wan.attention_block_forward(self, x, rows=(0, -(-x.shape[-2] // self.world_size))).contiguous()


def share(gpus):
    group = Group(gpus)
    dist.is_initialized = lambda: gpus > 1
    dist.P2POp, dist.batch_isend_irecv, dist.isend, dist.irecv = (lambda *a: None), (lambda ops: []), None, None
    for module in (parallel_conv, wan):
        for name, value in dict(get_decode_parallel_world_size=gpus, get_sp_world_size=gpus, get_decode_parallel_rank=0,
                                get_sp_parallel_rank=0, get_sp_group=group, get_decode_parallel_group_coordinator=group).items():
            if hasattr(module, name):
                setattr(module, name, lambda value=value: value)
    parallel_conv.gather_height_sizes = lambda x, parallel_group=None: [x.shape[-2]] * gpus
    wan.should_run_spatial_shard_parallel_decode = lambda config, z: gpus > 1
    wan.WanAttentionBlock.forward = attend


def count(name, what, shape, dtype, channels_last, autocast=False, gpus=1):
    share(gpus)
    cls, config, changes = MODELS[name]
    config = config()
    for key, value in changes.items():
        setattr(config.arch_config, key, value)
    with FakeTensorMode(allow_non_fake_inputs=True), torch.no_grad():
        torch.set_default_dtype(dtype)
        with torch.device("cuda"):
            vae = cls(config).requires_grad_(False)
        torch.set_default_dtype(torch.float32)
        for module in vae.modules():
            if channels_last and isinstance(module, torch.nn.Conv3d):
                module.weight.data = module.weight.data.to(memory_format=LAST[5])
        x = torch.randn(1, *shape, device="cuda", dtype=dtype)
        counter = Counter()
        torch.set_autocast_dtype("cuda", torch.float16 if dtype == torch.float16 else torch.bfloat16)
        torch.set_autocast_enabled("cuda", autocast)
        try:
            with counter:
                getattr(vae, what)(x)
        finally:
            torch.set_autocast_enabled("cuda", False)
    print(f"{name} {what} {'x'.join(map(str, shape))} {str(dtype)[6:]}{' autocast' * autocast}"
          f"{' channels last' * channels_last}, {gpus} GPUs: {counter.peak / MIB:.0f} MiB", flush=True)


FIVE = dict(base_dim=160, decoder_base_dim=256, z_dim=48, is_residual=True, in_channels=12, out_channels=12, patch_size=2,
            scale_factor_spatial=16, latents_mean=(0.0,) * 48, latents_std=(1.0,) * 48)
QWEN = dict(base_dim=96, z_dim=16, dim_mult=(1, 2, 4, 4), num_res_blocks=2, attn_scales=(), dropout=0.0, input_channels=3,
            temperal_downsample=(False, True, True), latents_mean=(0.0,) * 16, latents_std=(1.0,) * 16)
MODELS = {"wan2.1": (wan.AutoencoderKLWan, WanVAEConfig, {}), "wan2.2-5b": (wan.AutoencoderKLWan, WanVAEConfig, FIVE),
          "qwen-image": (qwen.AutoencoderKLQwenImage, QwenImageVAEConfig, QWEN),
          "hunyuan-video": (hunyuan.AutoencoderKLHunyuanVideo, HunyuanVAEConfig, {})}
BF16, FP16, FP32 = torch.bfloat16, torch.float16, torch.float32
for case in (("wan2.1", "decode", (16, 6, 60, 104), BF16, False), ("wan2.1", "decode", (16, 6, 90, 160), FP32, False),
             ("wan2.2-5b", "decode", (48, 6, 44, 80), FP32, False), ("qwen-image", "decode", (16, 1, 128, 128), BF16, False),
             ("wan2.1", "encode", (3, 25, 480, 832), FP32, False)):
    count(*case)  # as measured
for latents in (1, 6, 21):
    count("wan2.1", "decode", (16, latents, 60, 104), FP32, True, autocast=True)
    count("wan2.1", "decode", (16, latents, 60, 104), FP32, True)
for shape in ((16, 7, 120, 120), (16, 6, 90, 160)):
    count("wan2.1", "decode", shape, FP32, True, autocast=True)
count("wan2.1", "encode", (3, 25, 480, 832), FP32, True)
count("wan2.2-5b", "decode", (48, 1, 44, 80), FP32, True)
count("wan2.2-5b", "decode", (48, 6, 44, 80), FP32, True)
count("qwen-image", "decode", (16, 1, 128, 128), BF16, True)
count("hunyuan-video", "decode", (16, 6, 90, 160), FP16, False, autocast=True)  # in tiles
for autocast, shape in ((True, (16, 6, 60, 104)), (True, (16, 21, 60, 104)), (True, (16, 7, 120, 120)), (False, (16, 6, 90, 160))):
    count("wan2.1", "decode", shape, FP32, True, autocast=autocast, gpus=2)
count("wan2.1", "encode", (3, 25, 624, 624), FP32, False, gpus=2)
