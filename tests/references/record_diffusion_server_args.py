#!/usr/bin/env python3
"""Records what SGLang's own ServerArgs makes of random command lines of diffusion pipelines, for
tests/unit/launch/diffusion/server_args_test.cc: who shares the GPUs, where weights stay, or that it refuses.

Runs SGLang's Python on a CPU without PyTorch: what is imported and not there (torch, transformers, sglang.srt ...) is
replaced by modules whose names are empty classes, the GPU by one of so much memory, checkpoints by their sizes.

    pip install addict pyyaml numpy; pip download sglang==0.5.23 --no-deps && unzip -d SGLANG sglang-*.whl
    record_diffusion_server_args.py SGLANG diffusion_server_args.jsonl
"""
import abc
import importlib
import importlib.abc
import importlib.machinery
import json
import random
import sys
import types

SGLANG, OUTPUT = sys.argv[1:]
LINES = 500
GIB = 2 ** 30
CONTEXT = 0.5  # GiB that a process has taken when SGLang looks


class Empty(abc.ABCMeta):
    """The class of names that are not there."""
    def __getattr__(cls, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Empty(name, (object,), {})

    def __call__(cls, *args, **kwargs):
        return args[0] if len(args) == 1 and callable(args[0]) else cls

    def __getitem__(cls, key):
        return cls

    def __or__(cls, other):
        return cls

    __ror__ = __or__

    def __iter__(cls):
        return iter(())

    def __bool__(cls):
        return False


for operator in ("add", "radd", "sub", "rsub", "mul", "rmul", "truediv", "rtruediv", "neg", "lt", "gt", "le", "ge"):
    setattr(Empty, f"__{operator}__", lambda cls, *_: cls)


class EmptyModule(types.ModuleType):
    __path__ = []
    __version__ = "99.0"

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        value = sys.modules.get(f"{self.__name__}.{name}") or Empty(name, (object,), {})
        setattr(self, name, value)
        return value


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def __init__(self, *names):
        self.names = names

    def find_spec(self, name, path=None, target=None):
        if self.names:
            taken = any(name == known or name.startswith(known + ".") for known in self.names)
        else:
            taken = not name.startswith("sglang") and name.split(".")[0] not in sys.stdlib_module_names
        return importlib.machinery.ModuleSpec(name, self, is_package=True) if taken else None

    def create_module(self, spec):
        return EmptyModule(spec.name)

    def exec_module(self, module):
        pass


sys.path.insert(0, SGLANG)
sys.meta_path.insert(0, Finder("sglang.srt", "sglang.kernels", "sglang.jit_kernel", "torch", "transformers", "diffusers",
                               "safetensors", "triton"))
sys.meta_path.append(Finder())
import torch  # noqa: E402

for dtype, size in {"float32": 4, "bfloat16": 2, "float16": 2, "float64": 8}.items():
    setattr(torch, dtype, types.SimpleNamespace(itemsize=size, name=dtype))
for package in ("sglang", "sglang.multimodal_gen"):
    module = types.ModuleType(package)
    module.__path__ = [f"{SGLANG}/{package.replace('.', '/')}"]
    sys.modules[package] = module
server_args = importlib.import_module("sglang.multimodal_gen.runtime.server_args.server_args")
auto_tune = importlib.import_module("sglang.multimodal_gen.runtime.server_args.auto_tune")
argparse_of_sglang = importlib.import_module("sglang.multimodal_gen.runtime.utils.argparse")


def config(module, name):
    return getattr(importlib.import_module(f"sglang.multimodal_gen.configs.{module}"), name)


# Parameters of the components as published, in the order of model_index.json; the fields of tpsim's PipelineConfig.
T, X, I, V = "text_encoder", "transformer", "image_encoder", "vae"
MODELS = {
    "WanPipeline": (("pipeline_configs.wan", "WanT2V480PConfig"), ("sample.wan", "WanT2V_14B_SamplingParams"), True,
                    {"text_encoder": (T, 5681, 4), "transformer": (X, 14288, 2), "vae": (V, 127, 4)}),
    "WanPipeline 2": (("pipeline_configs.wan", "Wan2_2_T2V_A14B_Config"), ("sample.wan", "Wan2_2_T2V_A14B_SamplingParam"),
                      True, {"text_encoder": (T, 5681, 4), "transformer": (X, 14288, 2), "transformer_2": (X, 14288, 2),
                             "vae": (V, 127, 4)}),
    "WanImageToVideoPipeline": (("pipeline_configs.wan", "WanI2V480PConfig"), ("sample.wan", "WanI2V_14B_480P_SamplingParam"),
                                True, {"image_encoder": (I, 632, 4), "text_encoder": (T, 5681, 4),
                                       "transformer": (X, 16396, 2), "vae": (V, 127, 4)}),
    "HunyuanVideoPipeline": (("pipeline_configs.hunyuan", "HunyuanConfig"), ("sample.hunyuan", "HunyuanSamplingParams"), True,
                             {"text_encoder": (T, 7505, 2), "text_encoder_2": (T, 123, 2), "transformer": (X, 12821, 2),
                              "vae": (V, 246, 2)}),
    "FluxPipeline": (("pipeline_configs.flux", "FluxPipelineConfig"), ("sample.flux", "FluxSamplingParams"), False,
                     {"text_encoder": (T, 123, 2), "text_encoder_2": (T, 4762, 2), "transformer": (X, 11901, 2),
                      "vae": (V, 84, 2)}),
    "QwenImagePipeline": (("pipeline_configs.qwen_image", "QwenImagePipelineConfig"),
                          ("sample.qwenimage", "QwenImageSamplingParams"), False,
                          {"text_encoder": (T, 8292, 2), "transformer": (X, 20430, 2), "vae": (V, 127, 2)}),
    "ZImagePipeline": (("pipeline_configs.zimage", "ZImagePipelineConfig"), ("sample.zimage", "ZImageTurboSamplingParams"),
                       False, {"text_encoder": (T, 4022, 2), "transformer": (X, 6155, 2), "vae": (V, 84, 2)}),
    "LTX2Pipeline": (("pipeline_configs.ltx_2", "LTX2PipelineConfig"), ("sample.ltx_2", "LTX2SamplingParams"), True,
                     {"text_encoder": (T, 12187, 2), "transformer": (X, 18879, 2), "vae": (V, 1213, 2)}),
}
MEMORY = [23.6, 39.5, 47.4, 79.2, 140.4, 178.3]
MILLION = 1_000_000


class Gpu:
    """Of `memory` GiB, NVIDIA's."""
    def __init__(self):
        self.memory = 80.0

    def get_device_total_memory(self, device_id=0):
        return self.memory * GIB

    def get_available_gpu_memory(self, **_):
        return self.memory - CONTEXT

    def get_device_name(self, device_id=0):
        return "a GPU"

    def is_cuda(self):
        return True

    def enable_dit_layerwise_offload_by_default(self):
        return True

    def apply_server_args_defaults(self, args):
        pass

    def __getattr__(self, name):
        return lambda *args, **kwargs: False


GPU = Gpu()
for name, module in list(sys.modules.items()):
    if name.startswith("sglang.multimodal_gen") and "current_platform" in vars(module):
        module.current_platform = GPU
server_args.configure_logger = lambda *args, **kwargs: None
auto_tune.resolve_model_overlay = lambda path: None
ServerArgs = server_args.ServerArgs
ServerArgs._adjust_network_ports = ServerArgs._adjust_path = lambda self: None
ServerArgs._adjust_quant_config = ServerArgs.adjust_pipeline_config = lambda self: None


def resolve(name, memory, words):
    """Fields that are recorded; {"refused": true} where SGLang does."""
    (module, cls), (sampling_module, sampling_cls), _, components = MODELS[name]
    GPU.memory = memory
    sampling = config(sampling_module, sampling_cls)
    ServerArgs._model_default_uses_cfg = lambda self: (
        getattr(sampling, "negative_prompt", None) is not None and getattr(sampling, "guidance_scale", 0) > 1.0)
    sizes = {key: (count * MILLION, count * MILLION * size) for key, (_, count, size) in components.items()}
    auto_tune.checkpoint_component_sizes = lambda *args, **kwargs: sizes
    auto_tune.resolve_component_precision = lambda args, key: types.SimpleNamespace(itemsize=components[key][2])
    auto_tune.dit_parameter_count = lambda *args, **kwargs: components["transformer"][1] * MILLION
    pipeline = config(module, cls)()
    server_args.PipelineConfig.from_kwargs = classmethod(lambda cls, kwargs: pipeline)
    parser = argparse_of_sglang.FlexibleArgumentParser(exit_on_error=False)
    PARSERS.append(parser)
    ServerArgs.add_cli_args(parser)
    argv = ["--model-path", "m", *words]
    try:
        known, unknown = parser.parse_known_args(argv)
        args = ServerArgs.from_cli_args(known, unknown, argv=argv)
    except (ValueError, ZeroDivisionError, SystemExit) as error:
        return {"refused": True}, repr(error)
    gather = args.kv_gather_degree
    return {"tp": args.tp_size, "dp": args.dp_size, "cfg": args.cfg_parallel_degree if args.enable_cfg_parallel else 1,
            "sp": args.sp_degree, "ulysses": 1 if gather > 1 else args.ulysses_degree, "ring": args.ring_degree,
            "kv_gather": gather, "attention": args.attention_backend or "",
            "residency": {key: args.residency_mode(key) for key in components}}, ""


PARSERS = []


def command_line(draw, components):
    words = []

    def maybe(share, flag, *values):
        if draw.random() < share:
            words.extend([flag, *([draw.choice(values)] if values else [])])

    degrees = ["1", "2", "2", "4", "8"]
    maybe(0.9, "--num-gpus", "1", "2", "2", "3", "4", "4", "4", "6", "8", "8", "8")
    maybe(0.1, "--tp-size", *degrees)
    maybe(0.08, "--sp-degree", *degrees)
    maybe(0.2, "--ulysses-degree", *degrees)
    maybe(0.12, "--ring-degree", *degrees)
    maybe(0.08, "--kv-gather-degree", *degrees)
    maybe(0.1, "--enable-cfg-parallel", "true", "false")
    maybe(0.1, "--cfg-parallel-size", "1", "2", "4")
    maybe(0.1, "--dp-size", "1", "2", "4")
    maybe(0.4, "--performance-mode", "auto", "speed", "memory", "manual")
    maybe(0.15, "--attention-backend", "fa", "fa3", "torch_sdpa", "sage_attn", "video_sparse_attn")
    for flag in ("dit-cpu", "dit-layerwise", "text-encoder-cpu", "image-encoder-cpu", "vae-cpu"):
        maybe(0.12, f"--{flag}-offload", "true", "false")
    names = [*components, "dit", "text_encoder", "vae", "all"]
    maybe(0.12, "--cpu-offload-components", *names, "none")
    maybe(0.12, "--layerwise-offload-components", *names, "default")
    maybe(0.12, "--component-residency",
          *(f"{key}={mode}" for key in names for mode in ("resident", "component-offload", "layerwise-offload")))
    maybe(0.1, "--batching-max-size", "1", "4")
    return words


def main():
    draw = random.Random(1)
    lines = []
    while len(lines) < LINES:
        name = draw.choice(list(MODELS))
        memory, words = draw.choice(MEMORY), command_line(draw, MODELS[name][3])
        answer, why = resolve(name, memory, words)
        print(name, memory, " ".join(words), answer, why)
        lines.append({"model": name, "gib": memory, "words": " ".join(words), **answer})
    with open(OUTPUT, "w", encoding="utf-8") as out:
        models = {name: {"video": video, "guided": _guided(sampling), "components": components}
                  for name, (_, sampling, video, components) in MODELS.items()}
        for line in [{"models": models}, *lines]:
            out.write(json.dumps(line, separators=(",", ":")) + "\n")
    refused = sum("refused" in line for line in lines)
    print(f"{LINES} lines, {refused} refused")


def _guided(sampling):
    cls = config(*sampling)
    return getattr(cls, "negative_prompt", None) is not None and getattr(cls, "guidance_scale", 0) > 1.0


main()
