#!/usr/bin/env python3
"""SGLang's own parser and checks take every command that `tpsim plan` proposes.

Usage: plan_commands_test.py TPSIM SGLANG [CLASS ...]     SGLANG: the environment of install_sglang.py
"""

import json
import os
import shlex
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "cli"))
from plan_questions import CATALOGUE, Question, catalogue, looked_at, names  # noqa: E402

ANSWERED = 300
# A process of SGLang's for each of them. Ascend's PyTorch has no stand-in.
GPUS = tuple(name for name in names("hardware") if not name.startswith("ascend"))


def of_one_server(command):
    """Words behind the module's name, and the environment; of a router's line those that it hands to its servers."""
    words = shlex.split(command)
    environment = {}
    while "=" in words[0]:
        name, value = words.pop(0).split("=", 1)
        environment[name] = value
    routed = words[2] == "sglang_router.launch_server"
    left_out = ("--model-path", "--dp-size", "--router-policy") if routed else ("--model-path",)
    pairs = iter(words[3:])
    kept = []
    for word in pairs:
        if word in left_out:
            next(pairs)
        else:
            kept.append(word)
    return kept, environment


def draft_of(words):
    """The config.json of the head that drafts, as the catalogue has it; {} of a server without one of its own."""
    if "--speculative-draft-model-path" not in words:
        return {}
    path = words[words.index("--speculative-draft-model-path") + 1]
    return {"draft": next(head for head in (catalogue("drafts", name) for name in names("drafts"))
                          if path in head["_ids"])}


class PlanCommands(unittest.TestCase):
    program = python = None

    def plans(self):
        """Launch lines of each of GPUS, as sglang_accepts.py reads them."""
        lines = {gpu: [] for gpu in GPUS}
        answered = seed = 0
        with tempfile.TemporaryDirectory() as folder:
            while answered < ANSWERED:
                question = Question(seed)
                seed += 1
                config = catalogue("models", question.model)
                if question.hardware not in GPUS:
                    continue
                report = os.path.join(folder, str(seed))
                done = subprocess.run([self.program, "plan", *question.words(), "--report-dir", report, "--quiet"],
                                      capture_output=True, text=True)
                if done.returncode == 2:
                    continue
                self.assertEqual(done.returncode, 0, done.stderr)
                answered += 1
                with open(os.path.join(report, "plan.json")) as file:
                    best = looked_at(json.load(file)["best"])
                # Of several servers their own, and not the router's.
                for command in (line for one in best for line in one["launch"] if "launch_router" not in line):
                    words, environment = of_one_server(command)
                    lines[question.hardware].append((command, {"config": config, "words": words,
                                                               "environment": environment, **draft_of(words)}))
        return lines

    def test_every_command_is_accepted(self):
        for gpu, lines in self.plans().items():
            hardware = os.path.join(CATALOGUE, "hardware", gpu + ".json")
            done = subprocess.run([self.python, os.path.join(HERE, "sglang_accepts.py"), hardware], text=True,
                                  input="".join(json.dumps(line) + "\n" for _, line in lines), capture_output=True,
                                  env={**os.environ, "HF_HUB_OFFLINE": "1", "PYTHONDONTWRITEBYTECODE": "1"})
            self.assertEqual(done.returncode, 0, done.stderr[-4000:])
            verdicts = [json.loads(line) for line in done.stdout.splitlines()]
            self.assertEqual(len(verdicts), len(lines))
            for (command, _), verdict in zip(lines, verdicts):
                with self.subTest(gpu=gpu, command=command):
                    self.assertIsNone(verdict)


if __name__ == "__main__":
    PlanCommands.program = os.path.abspath(sys.argv.pop(1))
    PlanCommands.python = os.path.join(sys.argv.pop(1), "bin/python")
    if not os.path.exists(PlanCommands.python):
        sys.exit(77)  # there was no network
    unittest.main()
