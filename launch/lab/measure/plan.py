"""What is to be measured: servers and their loads, from the command line or a plan file.

A plan is JSON: {"loads": [LOAD…], "servers": [{"model_path": …, "name": …, "tp": 1, "flags": "…", "loads": [LOAD…],
"environment": {…}}…]}; of a server only "model_path" is needed, the loads of the plan are those of servers without their
own.
"""

import glob
import json
import os
import re
import shlex

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*\Z")
KEYS = {"name", "model_path", "tp", "flags", "loads", "environment"}
OWN_FLAGS = ("--model-path", "--model", "--tp-size", "--tp", "--host", "--port", "--decode-log-interval")
DEFAULT_VOCABULARY = 32000


class BadPlan(Exception):
    """One sentence that names the plan or the flag."""


class ServerSpec:
    def __init__(self, model_path, name=None, tp=1, flags="", loads=(), environment=None, server_command=None):
        self.model_path = os.path.expanduser(model_path)
        self.tp = tp
        self.flags = shlex.split(flags) if isinstance(flags, str) else list(flags)
        self.loads = list(loads)
        self.environment = dict(environment or {})
        self.server_command = server_command
        self.name = name or self._name()

    def _name(self):
        """llama-3.1-8b-tp1-fa3"""
        words = [os.path.basename(self.model_path.rstrip("/")), f"tp{self.tp}"]
        words += [flag.lstrip("-") for flag in self.flags if flag not in ("--attention-backend",)]
        return re.sub(r"[^A-Za-z0-9._-]+", "_", "-".join(words))[:120]

    def is_local(self):
        return os.path.isdir(self.model_path)

    def config(self):
        """The model's config.json, where it lies here."""
        try:
            with open(os.path.join(self.model_path, "config.json")) as file:
                return json.load(file)
        except OSError:
            return None

    def vocabulary(self):
        config = self.config() or {}
        return config.get("vocab_size") or config.get("text_config", {}).get("vocab_size") or DEFAULT_VOCABULARY

    def server_flags(self):
        """The user's flags, and what a folder without weights or tokenizer needs."""
        flags = list(self.flags)
        if self.is_local():
            if "--load-format" not in flags and not glob.glob(os.path.join(self.model_path, "*.safetensors")):
                flags += ["--load-format", "dummy"]
            if "--skip-tokenizer-init" not in flags and not glob.glob(os.path.join(self.model_path, "tokenizer*")):
                flags.append("--skip-tokenizer-init")
        return flags

    def identity(self):
        """What must not change between a run and its resumption."""
        return {"model_path": self.model_path, "tp": self.tp, "flags": self.flags}

    def check(self):
        if not NAME.match(self.name):
            raise BadPlan(f"server {self.name!r}: must be a name of letters, digits, '.', '_' and '-'")
        if not isinstance(self.tp, int) or isinstance(self.tp, bool) or self.tp < 1:
            raise BadPlan(f"server {self.name}: tp is {self.tp!r}; must be a whole number from 1 up")
        if self.model_path.startswith(("/", ".")) and not os.path.isfile(os.path.join(self.model_path, "config.json")):
            raise BadPlan(f"server {self.name}: {self.model_path} has no config.json")
        for flag in self.flags:
            if flag.split("=")[0] in OWN_FLAGS:
                raise BadPlan(f"server {self.name}: {flag.split('=')[0]} is set by this program; leave it out of the flags")
        if not self.loads:
            raise BadPlan(f"server {self.name}: has no loads; name some with --loads")


def read_plan(path, default_loads=(), server_command=None):
    """The servers of a plan file. Raises BadPlan."""
    try:
        with open(path) as file:
            plan = json.load(file)
    except OSError as error:
        raise BadPlan(f"--plan {path}: {error.strerror}") from None
    except ValueError as error:
        raise BadPlan(f"--plan {path}: is not JSON: {error}") from None
    servers = plan.get("servers") if isinstance(plan, dict) else None
    if not isinstance(servers, list) or not servers:
        raise BadPlan(f'--plan {path}: has no list "servers"')
    specs = []
    for i, server in enumerate(servers):
        of = f'--plan {path}: servers[{i}]'
        if not isinstance(server, dict) or not isinstance(server.get("model_path"), str):
            raise BadPlan(f'{of}: "model_path" is missing')
        unknown = sorted(set(server) - KEYS)
        if unknown:
            raise BadPlan(f"{of}: {unknown[0]!r} is not known; use {', '.join(sorted(KEYS))}")
        specs.append(ServerSpec(**{**server, "loads": server.get("loads") or plan.get("loads") or default_loads},
                                server_command=server_command))
    return specs


def check_all(specs):
    for spec in specs:
        spec.check()
    names = [spec.name for spec in specs]
    for name in names:
        if names.count(name) > 1:
            raise BadPlan(f"server {name}: is there twice; give each a name")
