#!/usr/bin/env python3
"""Whatever `tpsim plan` is asked: `tpsim run` takes every command that it proposes, with the figures that it printed.

Usage: plan_questions_test.py TPSIM [CLASS ...]
"""

import json
import os

from command_line import CommandLine, main
from plan_questions import Question, looked_at, run_words

ASKED = 60 if os.environ.get("TPSIM_LONG") else 20


class PlanQuestions(CommandLine):
    def test_every_command_runs_with_the_figures_of_its_plan(self):
        answered = commands = 0
        for seed in range(ASKED):
            question = Question(seed)
            report = os.path.join(self.folder, f"plan{seed}")
            done = self.tpsim("plan", *question.words(), "--report-dir", report, timeout=900)
            if done.returncode == 2:  # there is no such server: the model does not fit, the GPU has no kernels for it
                self.assertRegex(done.stderr, r"\Atpsim: [^\n]+\n\Z")
                continue
            self.assertEqual(done.returncode, 0, f"{question.words()}: {done.stderr}")
            answered += 1
            with open(os.path.join(report, "plan.json")) as file:
                plan = json.load(file)
            for rank, best in enumerate(looked_at(plan["best"])):
                with self.subTest(seed=seed, command=best["launch"]):
                    self.same_figures(question, best, os.path.join(self.folder, f"run{seed}.{rank}"))
                    commands += 1
        self.assertGreater(answered, ASKED / 3)
        self.assertGreater(commands, answered)

    def same_figures(self, question, best, report):
        done = self.tpsim("run", *run_words(best, question.flags), "--hardware", question.hardware, *question.load,
                          "--report-dir", report)
        self.assertEqual(done.returncode, 0, done.stderr)
        run = self.result(report)
        self.assertEqual({name: run[name] for name in best["figures"]}, best["figures"])
        self.assertEqual(run["error_bands"]["bands"] if "error_bands" in run else [], best["bands"])


if __name__ == "__main__":
    main()
