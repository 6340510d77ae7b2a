#!/usr/bin/env python3
"""Diffusion pipelines computed, seen from outside: `tpsim verify` of tiny ones against what Diffusers recorded in
tests/golden/diffusion. Their weights come from the rule of tests/references/diffusion_weights.py.

Usage: pipeline_test.py TPSIM PIPELINES [CLASS ...]      PIPELINES: tests/golden/diffusion
"""

import functools
import json
import os
import shutil
import sys
import unittest

import numeric_test
from numeric_test import Numeric, reference

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../references"))
import diffusion_weights  # noqa: E402

TOLERANCE = 1e-4


@functools.cache
def weights(name):
    """Files and their bytes."""
    of = reference(name)
    tensors = {f"{encoder['folder']}/model.safetensors": encoder["tensors"] for encoder in of.get("text_encoders", [])}
    diffusers = {"transformer": of["tensors"], "transformer_2": of.get("transformer_2"),
                 "vae": of.get("pixels", {}).get("tensors")}
    if "image_encoder" in of:
        tensors["image_encoder/model.safetensors"] = of["image_encoder"]
    tensors.update({f"{folder}/diffusion_pytorch_model.safetensors": shapes
                    for folder, shapes in diffusers.items() if shapes})
    return {path: diffusion_weights.safetensors(shapes) for path, shapes in tensors.items()}


class Pipelines(Numeric):
    def pipeline(self, name, **changes):
        """A copy with weights; changes: files with the keys that are others."""
        folder = self.path(name)
        shutil.copytree(os.path.join(numeric_test.MODELS, name), folder, dirs_exist_ok=True)
        for path, data in weights(name).items():
            with open(os.path.join(folder, path), "wb") as file:
                file.write(data)
        for file, keys in changes.items():
            path = os.path.join(folder, {"transformer": "transformer/config.json", "index": "model_index.json",
                                         "vae": "vae/config.json", "encoder": "text_encoder/config.json",
                                         "scheduler": "scheduler/scheduler_config.json"}[file])
            with open(path) as old:
                data = {**json.load(old), **keys}
            with open(path, "w") as new:
                json.dump(data, new)
        return folder

    def rows(self, folder, *extra, processes=None, status=0):
        """(ranks, tp, cfg, ring, ulysses), backend, kept, from dense, from the reference, of the pixels (if it has some)"""
        done = self.tpsim("verify", "--model-path", folder, *extra, processes=processes)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        self.last_line = done.stdout.splitlines()[-1]
        found = []
        for line in done.stdout.splitlines()[1:]:
            words = line.replace("%", "").split()
            if len(words) >= 8 and words[0].isdigit():
                found.append((tuple(map(int, words[:5])), words[5], *map(float, words[6:10])))
        return found

    def test_diffusers_loop_by_every_split(self):
        for name, splits in (("wan", 16), ("wan-euler", 16), ("wan-i2v", 16), ("wan-ti2v", 16), ("wan-clip", 16), ("flux", 10),
                             ("flux-schnell", 10), ("flux2-klein", 16), ("qwen-image", 16), ("qwen-image-edit", 16),
                             ("sd3", 16), ("z-image", 16)):
            folder = self.pipeline(name)
            rows = self.rows(folder, "--reference", os.path.join(folder, "reference.json"), "--attention-backends", "fa")
            self.assertEqual(len({split for split, *_ in rows}), splits)
            for split, backend, kept, *differences in rows:
                with self.subTest(name=name, split=split):
                    self.assertEqual(kept, 100)
                    self.assertEqual(len(differences), 3 if "pixels" in reference(name) else 2)
                    self.assertLessEqual(max(differences), TOLERANCE)

    def test_weights_cut_over_ranks(self):
        for name, tp, splits in (("wan", 4, 4), ("wan-euler", 8, 1), ("flux", 4, 3), ("flux2-klein", 2, 9),
                                 ("qwen-image", 4, 4), ("z-image", 4, 4), ("sd3", 4, 4), ("qwen-image-edit", 8, 1),
                                 ("wan-ti2v", 4, 4), ("wan-clip", 2, 9)):
            folder = self.pipeline(name)
            flags = ["--reference", os.path.join(folder, "reference.json"), "--attention-backends", "fa", "--tp-size",
                     str(tp)]
            rows = self.rows(folder, *flags)
            self.assertEqual({split[1] for split, *_ in rows}, {tp})
            self.assertEqual(len(rows), splits)
            for split, *_, dense, reference, pixels in rows:
                with self.subTest(name=name, split=split):
                    self.assertLessEqual(max(dense, reference, pixels), TOLERANCE)
                    self.assertGreater(dense, 0)  # sums come in other orders
            if name == "wan":  # a group of ranks in each of two processes
                self.assertEqual(self.rows(folder, *flags, "--num-gpus", "8", processes=2),
                                 [row for row in rows if row[0][0] == 8])

    def test_processes(self):
        folder = self.pipeline("wan")
        flags = ["--reference", os.path.join(folder, "reference.json"), "--attention-backends", "fa,sage_attn"]
        alone = {row[:2]: row for row in [*self.rows(folder, *flags),
                                          *self.rows(folder, *flags, "--num-gpus", "4", "--tp-size", "2")]}
        for processes, ranks, tp in ((1, 1, 1), (2, 2, 1), (4, 4, 1), (8, 8, 1), (2, 4, 1), (4, 4, 2)):
            with self.subTest(processes=processes, ranks=ranks, tp=tp):
                rows = self.rows(folder, *flags, "--num-gpus", str(ranks), "--tp-size", str(tp), processes=processes)
                self.assertGreater(len(rows), 0)
                for row in rows:
                    self.assertEqual(row, alone[row[:2]])  # as printed

    def test_processes_of_images(self):
        for name in ("qwen-image", "qwen-image-edit", "sd3", "z-image"):
            with self.subTest(name=name):
                folder = self.pipeline(name)
                flags = ["--reference", os.path.join(folder, "reference.json"), "--attention-backends", "fa",
                         "--enable-cfg-parallel", "--num-gpus", "4"]
                alone = [row for row in self.rows(folder, *flags) if row[0][0] == 4]
                self.assertEqual(self.rows(folder, *flags, processes=2), alone)

    def test_backends_say_how_far_they_are_off(self):
        folder = self.pipeline("wan")
        sizes = ["--latent-size", "4x8x24", "--num-gpus", "2", "--num-inference-steps", "2"]
        differences = {}
        for sparsity in ("0", "0.5", "0.9"):
            rows = self.rows(folder, *sizes, "--attention-backends", "video_sparse_attn", "--attention-backend-config",
                             f"sparsity={sparsity}")
            self.assertEqual(len(rows), 3)  # one rank, two by Ulysses, two by guidance
            self.assertEqual(len({row[2:] for row in rows}), 1)
            differences[sparsity] = rows[0][2:4]
            self.assertEqual(self.last_line.startswith("Nothing here must be the same"), sparsity != "0")
        self.assertEqual(differences["0"], (100.0, 0.0))
        self.assertEqual([kept for kept, _ in differences.values()], [100.0, 66.7, 33.3])  # of three tiles 3, 2, 1
        self.assertLess(0, differences["0.5"][1])
        self.assertLess(differences["0.5"][1], differences["0.9"][1])
        for row in self.rows(folder, *sizes, "--attention-backends", "sage_attn"):
            self.assertLess(1e-5, row[3])
            self.assertLess(row[3], 0.1)

    def test_text_encoders(self):
        for name, encoders in (("wan", {"text_encoder": 16}), ("flux", {"text_encoder": 20, "text_encoder_2": 22}),
                               ("flux2-klein", {"text_encoder": 22}), ("z-image", {"text_encoder": 20}),
                               ("qwen-image", {"text_encoder": 70}), ("qwen-image-edit", {"text_encoder": 119})):
            folder = self.pipeline(name)
            path = os.path.join(folder, "reference.json")
            flags = ["--reference", path, "--attention-backends", "fa", "--num-gpus", "1"]
            done = self.tpsim("verify", "--model-path", folder, *flags)
            for component, tokens in encoders.items():
                line = next(line for line in done.stdout.splitlines()
                            if line.startswith(f"{component} of {tokens} tokens: "))
                self.assertLessEqual(float(line.split(": ")[1].split()[0]), TOLERANCE)
            with open(path) as file:
                wrong = json.load(file)
            wrong["text_encoders"][0]["rows"][5] += 0.01
            with open(path, "w") as file:
                json.dump(wrong, file)
            self.rows(folder, *flags, status=1)
            self.assertEqual(self.last_line, "A text encoder disagrees.")

    def test_a_wrong_reference_disagrees(self):
        for values, more in ((lambda wrong: wrong["latents"], 0.01), (lambda wrong: wrong["pixels"]["values"], 0.01),
                             (lambda wrong: wrong["text_encoders"][0]["negative_ids"], -1)):
            folder = self.pipeline("z-image")
            path = os.path.join(folder, "reference.json")
            with open(path) as file:
                wrong = json.load(file)
            values(wrong)[5] += more
            with open(path, "w") as file:
                json.dump(wrong, file)
            self.rows(folder, "--reference", path, "--attention-backends", "fa", "--num-gpus", "1", status=1)
            self.assertEqual(self.last_line, "1 of 1 rows disagree.")

    def test_text_encoders_that_are_not_computed_are_refused(self):
        for name, changes, words in (
                ("z-image", {"encoder": {"model_type": "gemma3_text"}}, "clip_text_model, qwen3 or qwen2_5_vl"),
                ("z-image", {"index": {"_class_name": "LuminaPipeline"}}, "what a LuminaPipeline reads"),
                ("z-image", {"encoder": {"head_dim": 6}}, "q_proj"),
                ("flux", {"index": {"_class_name": "StableDiffusion3Pipeline"}}, "clip_text_model"),
                ("flux", {"encoder": {"max_position_embeddings": 16}}, "position_embedding"),
                ("flux2-klein", {"encoder": {"num_hidden_layers": 27}}, "what goes into layer 27"),
                ("flux", {"encoder": {"hidden_act": "relu"}}, "text_encoder/config.json: hidden_act"),
                ("qwen-image", {"index": {"_class_name": "ZImagePipeline"}}, "\"rows\" of text_encoder")):
            with self.subTest(name=name, changes=changes):
                folder = self.pipeline(name, **changes)
                self.refuse(folder, words, "--reference", os.path.join(folder, "reference.json"), "--num-gpus", "1",
                            "--attention-backends", "fa")

    def test_prompts_that_the_transformer_cannot_read_are_refused(self):
        for name, change, words in (
                ("z-image", lambda of: of["text_encoders"][0].pop("negative_ids"), "no \"negative_ids\""),
                ("flux", lambda of: of["text_encoders"].pop(0), "22 rows and 0 pooled numbers"),
                ("flux", lambda of: of["text_encoders"].pop(1), "0 rows and 24 pooled numbers"),
                ("wan", lambda of: of["text_encoders"][0].update(padding=3), "3 tokens of padding"),
                ("flux2-klein", lambda of: of["text_encoders"][0].update(padding=22), "\"padding\" is 22, of 22 ids"),
                ("wan", lambda of: of.update(text_tokens=9), "at most 9 times 24"),
                ("qwen-image-edit", lambda of: of["text_encoders"][0].pop("image"), "\"image\" of a text encoder is missing"),
                ("qwen-image-edit", lambda of: of["text_encoders"][0]["image"].update(tokens=5), "84 x 56 pixels have 6"),
                ("qwen-image-edit", lambda of: of["text_encoders"][0]["image"].update(width=0), "width"),
                ("qwen-image", lambda of: of["text_encoders"][0].update(
                    image=reference("qwen-image-edit")["text_encoders"][0]["image"]), "this one sees none")):
            with self.subTest(name=name, words=words):
                folder = self.pipeline(name)
                of = json.loads(json.dumps(reference(name)))
                change(of)
                path = os.path.join(folder, "reference.json")
                with open(path, "w") as file:
                    json.dump(of, file)
                self.refuse(folder, words, "--reference", path, "--num-gpus", "1")

    def test_vaes_that_are_not_computed_are_refused(self):
        for name, changes, words in (("z-image", {"_class_name": "AutoencoderDC"}, "AutoencoderKLWan or AutoencoderKLQwenImage"),
                                     ("z-image", {"act_fn": "gelu"}, "act_fn"),
                                     ("z-image", {"tiled_blocks": 2}, "tiled_blocks"),
                                     ("wan", {"shift_factor": 0.5}, "shift_factor"),
                                     ("z-image", {"norm_num_groups": 3}, "norm_num_groups"),
                                     ("z-image", {"up_block_types": ["AttnUpDecoderBlock2D"]}, "up_block_types"),
                                     ("z-image", {"latents_mean": [0] * 4}, "latents_mean"),
                                     ("z-image", {"layers_per_block": 2}, "decoder.up_blocks.0.resnets.2"),
                                     ("z-image", {"latent_channels": 8}, "decoder.conv_in"),
                                     ("flux2-klein", {"patch_size": [1, 1]}, "patch_size"),
                                     ("flux2-klein", {"latent_channels": 8}, "bn.running_var"),
                                     ("wan", {"is_residual": True}, "decoder.up_blocks.0.upsampler"),
                                     ("wan", {"base_dim": 60000}, "dim_mult"),
                                     ("wan", {"patch_size": 2}, "patch_size"),
                                     ("wan", {"temperal_downsample": [True]}, "temperal_downsample"),
                                     ("wan", {"temperal_downsample": [False, True]}, "pixels"),
                                     ("wan", {"latents_std": [1, 1, 0, 1]}, "latents_std"),
                                     ("wan", {"latents_mean": None}, "latents_mean"),
                                     ("wan-i2v", {"z_dim": 2}, "latents_std"),
                                     ("wan-i2v", {"temperal_downsample": [True, False]}, "pixels")):
            with self.subTest(name=name, changes=changes):
                folder = self.pipeline(name, vae=changes)
                self.refuse(folder, words, "--reference", os.path.join(folder, "reference.json"))

    def test_an_image_needs_the_encoder_of_the_vae(self):
        for name in ("wan-i2v", "wan-ti2v", "qwen-image-edit"):
            folder = self.pipeline(name)
            of = reference(name)
            decoder = {key: shape for key, shape in of["pixels"]["tensors"].items() if not key.startswith("encoder")}
            with open(os.path.join(folder, "vae/diffusion_pytorch_model.safetensors"), "wb") as file:
                file.write(diffusion_weights.safetensors(decoder))
            self.refuse(folder, "the VAE's encoder", "--reference", os.path.join(folder, "reference.json"))

    def test_what_other_stable_diffusions_have_is_refused(self):
        for change, words in (({"qk_norm": None}, "rms_norm"), ({"dual_attention_layers": [0]}, "dual_attention_layers"),
                              ({"pos_embed_max_size": 4}, "pos_embed.pos_embed"), ({"patch_size": 1}, "patch_size")):
            with self.subTest(change=change):
                self.refuse(self.pipeline("sd3", transformer=change), words)

    def test_seeded_weights_need_no_checkpoint(self):
        folder = self.pipeline("wan")
        os.remove(os.path.join(folder, "transformer", "diffusion_pytorch_model.safetensors"))
        self.refuse(folder, "--load-format dummy")
        rows = self.rows(folder, "--load-format", "dummy", "--attention-backends", "fa", "--num-gpus", "2")
        self.assertEqual({row[:2] for row in rows if row[3] > TOLERANCE}, set())
        self.assertGreater(len(rows), 3)

    def test_one_split(self):
        rows = self.rows(self.pipeline("wan"), "--num-gpus", "8", "--ulysses-degree", "2", "--ring-degree", "2",
                         "--attention-backends", "fa", "--enable-cfg-parallel")
        self.assertEqual([split for split, *_ in rows], [(8, 1, 2, 2, 2)])

    def refuse(self, folder, words, *flags):
        done = self.tpsim("verify", "--model-path", folder, *flags)
        self.assertEqual(done.returncode, 2, done.stdout + done.stderr)
        self.assertIn(words, done.stderr)

    def test_what_is_not_computed_is_refused(self):
        for changes, words in (
                ({"transformer": {"_class_name": "LTX2VideoTransformer3DModel"}}, "LTX2VideoTransformer3DModel"),
                ({"transformer": {"image_dim": 8}}, "image_dim"),
                ({"transformer": {"ffn_dim": 41}}, "ffn.net.0.proj"),
                ({"scheduler": {"_class_name": "DDIMScheduler"}}, "DDIMScheduler"),
                ({"scheduler": {"solver_order": 3}}, "solver_order"),
                ({"index": {"boundary_ratio": 0.9}}, "transformer_2/config.json")):
            with self.subTest(changes=changes):
                self.refuse(self.pipeline("wan", **changes), words)
        self.refuse(self.pipeline("wan-i2v"), "8 channels of an image beside 4 of latents")
        folder = self.pipeline("wan-i2v", transformer={"in_channels": 11})
        self.refuse(folder, "patch_embedding")
        folder = self.pipeline("wan")
        for words, *flags in (("sage_sla_attn", "--attention-backends", "sage_sla_attn"),
                              ("--latent-size 3x6", "--latent-size", "3x6"),
                              ("--latent-size", "--latent-size", "3x5x10"),
                              ("--ulysses-degree 3", "--num-gpus", "3", "--ulysses-degree", "3"),
                              ("--tp-size 3: does not divide num_attention_heads", "--tp-size", "3"),
                              ("--num-gpus 6", "--num-gpus", "6", "--tp-size", "4"),
                              ("--enable-cfg-parallel", "--guidance-scale", "1", "--enable-cfg-parallel"),
                              ("--reference", "--reference", "none.json"),
                              ("--attention-backend-config", "--attention-backend-config", "sparsity=0.5")):
            with self.subTest(flags=flags):
                self.refuse(folder, words, *flags)
        for name, changes, words in (("qwen-image", {"zero_cond_t": True}, "zero_cond_t"),
                                     ("qwen-image", {"axes_dims_rope": [2, 2, 2]}, "axes_dims_rope"),
                                     ("z-image", {"siglip_feat_dim": 8}, "siglip_feat_dim"),
                                     ("flux2-klein", {"eps": 1e-5}, "eps"),
                                     ("flux2-klein", {"axes_dims_rope": [2, 4, 2]}, "4 whole numbers"),
                                     ("z-image", {"all_patch_size": [4]}, "all_patch_size")):
            with self.subTest(name=name, changes=changes):
                self.refuse(self.pipeline(name, transformer=changes), words)
        self.refuse(self.pipeline("flux2-klein", index={"is_distilled": True}), "--guidance-scale 5")
        image = self.pipeline("flux")
        self.refuse(image, "of 1 frame")
        for words, *flags in (("video_sparse_attn", "--attention-backends", "video_sparse_attn"),
                              ("--enable-cfg-parallel", "--enable-cfg-parallel")):
            with self.subTest(flags=flags):
                self.refuse(image, words, *flags, "--latent-size", "1x6x10")
        self.refuse("wan2.1-t2v-1.3b", "without weights")


if __name__ == "__main__":
    numeric_test.TPSIM = os.path.abspath(sys.argv.pop(1))
    numeric_test.MODELS = os.path.abspath(sys.argv.pop(1))
    unittest.main()
