#!/usr/bin/env python3
"""`tpsim models`: what stands behind each family of models on each GPU.

Usage: models_test.py TPSIM [CLASS ...]
"""

import json

from command_line import CommandLine, main


class Models(CommandLine):
    def listed(self, *words):
        done = self.tpsim("models", *words, "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        return {family["family"]: family for family in json.loads(done.stdout)["families"]}

    def behind(self, family, hardware):
        return self.listed(family, "--hardware", hardware)[family]["gpus"][0]

    def test_every_family_and_gpu_is_server_kernels_or_datasheet(self):
        families = self.listed()
        self.assertGreaterEqual(len(families), 15)
        for family in families.values():
            self.assertGreaterEqual(len(family["gpus"]), 20)
            self.assertTrue(family["models"])
            for gpu in family["gpus"]:
                self.assertIn(gpu["behind"], ("server", "kernels", "datasheet", "refused"))
                self.assertEqual(gpu["behind"] == "server", gpu["loads"] > 0, gpu)
                self.assertEqual("reason" in gpu, gpu["behind"] == "refused")

    def test_it_is_what_a_run_says(self):
        self.assertEqual(self.behind("Llama", "h200-sxm")["behind"], "server")
        self.assertEqual(self.behind("Starcoder2", "h200-sxm")["behind"], "kernels")
        self.assertIn("gemm", self.behind("Llama", "rtx-4090")["unmeasured"])
        load = ("--dataset-name", "random", "--num-prompts", "2", "--random-input-len", "64", "--random-output-len", "4")
        for hardware, behind in (("h200-sxm", "server"), ("h100-sxm", "kernels"), ("rtx-4090", "datasheet")):
            self.assertEqual(self.behind("Llama", hardware)["behind"], behind)
            said = self.tpsim("run", "--model-path", "llama-3.1-8b", "--hardware", hardware, "--tp", "2", *load).stdout
            self.assertEqual("no server of this family on this GPU was measured" in said, behind != "server", said)
            self.assertEqual("prices follow its datasheet" in said, behind == "datasheet", said)

    def test_a_family_shows_its_models(self):
        for name in ("gptoss", "gpt-oss-120b"):
            done = self.tpsim("models", name)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertTrue(done.stdout.startswith("GptOss: gpt-oss-120b, gpt-oss-120b-bf16, gpt-oss-20b"), done.stdout)
            self.assertRegex(done.stdout, r"(?m)^h200-sxm +server +\d+ loads? of \d+ server")

    def test_what_is_unknown_is_refused(self):
        done = self.tpsim("models", "Lama")
        self.assertEqual(done.returncode, 2)
        self.assertIn("models Lama: is no family, nor a model of the catalogue, did you mean Llama, Lfm2, Llama4?", done.stderr)
        done = self.tpsim("models", "--hardware", "h3000")
        self.assertEqual(done.returncode, 2)
        self.assertIn("--hardware", done.stderr)


if __name__ == "__main__":
    main()
