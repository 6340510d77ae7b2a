"""What SGLang's own parser and checks say of launch lines, without a GPU: torch.cuda answers as the named GPU would.

Usage: sglang_accepts.py HARDWARE.json < LINES > VERDICTS

HARDWARE.json: of rank/catalogue/hardware. A line of LINES is {"config": a config.json, "words": behind the module's
name, --model-path left out, "draft": the config.json of --speculative-draft-model-path, where there is one,
"environment": {…}}; its verdict, a line of JSON, is null or what SGLang says.
"""

import contextlib
import importlib.abc
import importlib.machinery
import io
import json
import os
import sys
import tempfile
import types
import warnings

import torch
import torchvision  # noqa: F401: it looks at the CUDA that torch was made for, before pretend() changes that

CAPABILITIES = {"turing": (7, 5), "ampere": (8, 0), "ada": (8, 9), "hopper": (9, 0), "blackwell": (10, 0),
                "blackwell_sm120": (12, 0)}
# Packages with kernels, which are imported where a server starts and by no check.
KERNELS = ["tvm_ffi", "gguf", "sentencepiece", "sgl_kernel", "flashinfer"]


# Classes that Transformers does not list, by the keys of SGLang's own configurations.
OTHER_TYPES = {"BailingMoeV2_5ForCausalLM": "bailing_hybrid", "ChatGLMModel": "chatglm",
               "DeepseekOCRForCausalLM": "deepseek-ocr",
               "Ernie4_5_ForCausalLM": "ernie4_5", "ExaoneForCausalLM": "exaone", "ExaoneMoEForCausalLM": "exaone_moe",
               "InternVLChatModel": "internvl_chat", "Step3p5ForCausalLM": "step3p5"}

# What a checkpoint with a class of its own brings along: its keys, without their defaults.
REMOTE = """from transformers.configuration_utils import PretrainedConfig


class Config(PretrainedConfig):
    model_type = {!r}
"""


class Kind(type):
    """A class that has whatever is asked of it: modules of SGLang name such things as they are imported."""

    def __getattr__(cls, name):
        if name.startswith("__"):
            raise AttributeError(name)
        made = Kind(name, (Thing,), {})
        setattr(cls, name, made)
        return made

    def __getitem__(cls, key):
        return cls

    def __or__(cls, other):
        return cls

    __ror__ = __or__


class Thing:
    def __init__(self, *args, **kwargs):
        pass

    def __call__(self, *args, **kwargs):
        return args[0] if args and callable(args[0]) else self  # as a decorator

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Thing()

    def __bool__(self):
        return False


class Kernels(types.ModuleType):
    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        made = Kind(name, (Thing,), {})
        setattr(self, name, made)
        return made


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """The last one: of KERNELS what is not installed."""

    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] not in KERNELS:
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec):
        return Kernels(spec.name)

    def exec_module(self, module):
        pass


def pretend(hardware):
    """PyTorch of so many of that GPU, or of that CPU."""
    bytes_, kind = hardware["memory_bytes"], hardware["architecture"]

    class Properties:
        major, minor = CAPABILITIES.get(kind, (9, 4))
        total_memory = bytes_
        multi_processor_count = hardware["multiprocessors"]
        name = ("AMD " if kind == "rocm" else "NVIDIA ") + hardware["device_names"][0].upper()
        is_integrated, has_fp64 = False, True
        gcnArchName = "gfx950" if "mi35" in hardware["device_names"][0] else "gfx942" if kind == "rocm" else ""

    if kind == "cpu":
        os.environ["SGLANG_USE_CPU_ENGINE"] = "1"
        return
    if kind == "npu":
        torch.npu = types.ModuleType("torch.npu")
    devices = {"npu": "npu", "xpu": "xpu"}.get(kind, "cuda")
    there = getattr(torch, devices)
    there.is_available = there.is_initialized = lambda: True
    there.device_count = lambda: 64
    there.current_device = lambda: 0
    there.get_device_capability = lambda *_: (Properties.major, Properties.minor)
    there.get_device_properties = lambda *_: Properties
    there.get_device_name = lambda *_: Properties.name
    there.mem_get_info = lambda *_: (bytes_, bytes_)
    there.is_bf16_supported = lambda *_, **__: True
    if kind == "rocm":
        torch.version.hip = "7.0"
        KERNELS.append("aiter")
    elif kind in CAPABILITIES:
        torch.version.cuda = "13.0"


def model_type(architecture):
    """The key of a class in config.json, which the catalogue leaves out."""
    from transformers.models.auto import modeling_auto

    for names in ("MODEL_FOR_CAUSAL_LM_MAPPING_NAMES", "MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES"):
        for key, classes in getattr(modeling_auto, names).items():
            if architecture == classes or (not isinstance(classes, str) and architecture in classes):
                return key
    return OTHER_TYPES.get(architecture)


def verdict(line):
    from sglang.srt.server_args import prepare_server_args

    said = io.StringIO()
    with tempfile.TemporaryDirectory() as folder:
        config = dict(line["config"])
        config.setdefault("model_type", model_type(config["architectures"][0]))
        pattern = config.get("sliding_window_pattern")
        if isinstance(pattern, str):  # EXAONE's checkpoints name each layer besides
            config["layer_types"] = ["full_attention" if pattern[i % len(pattern)] == "G" else "sliding_attention"
                                     for i in range(config["num_hidden_layers"])]
        words = list(line["words"])
        if "--trust-remote-code" in words:
            config["model_type"] = config["model_type"] or "remote"
            config["auto_map"] = {"AutoConfig": "configuration.Config"}
            with open(os.path.join(folder, "configuration.py"), "w") as file:
                file.write(REMOTE.format(config["model_type"]))
        draft = os.path.join(folder, "draft")
        os.mkdir(draft)
        if "draft" in line:
            words[words.index("--speculative-draft-model-path") + 1] = draft
        for where, what in ((folder, config), (draft, line.get("draft", {}))):
            with open(os.path.join(where, "config.json"), "w") as file:
                json.dump(what, file)
        os.environ.update(line["environment"])
        try:
            with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
                args = prepare_server_args(["--model-path", folder, *words])
                args.resolve_once()
                args.check_server_args()
        except SystemExit:
            return said.getvalue().strip().splitlines()[-1]
        except Exception as error:
            return f"{type(error).__name__}: {error}"
    return None


def main():
    warnings.filterwarnings("ignore")
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what SGLang prints is no verdict
    with open(sys.argv[1]) as file:
        hardware = json.load(file)
    pretend(hardware)
    sys.meta_path.append(Finder())
    from sglang.srt.utils import common

    common.get_nvgpu_memory_capacity = lambda: hardware["memory_bytes"] / 2**20
    for line in sys.stdin:
        # Checks leave variables in the environment.
        before = dict(os.environ)
        answers.write(json.dumps(verdict(json.loads(line))) + "\n")
        answers.flush()
        os.environ.clear()
        os.environ.update(before)


if __name__ == "__main__":
    main()
