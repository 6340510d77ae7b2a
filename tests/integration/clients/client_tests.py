"""What the tests of this folder share: a server, the clients' Python, and the virtual clock's word on a load."""

import json
import os
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "serve"))
from server import DEPLOYMENT, Server  # noqa: E402

GOLDEN = os.path.join(os.path.dirname(os.path.dirname(HERE)), "golden")


class ClientTest(unittest.TestCase):
    program = None  # tpsim
    python = None  # of the clients

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def serve(self, *flags, **more):
        server = Server(self.program, *flags, **more)
        self.addCleanup(server.stop)
        return server

    def needs_tokenizer(self, server):
        """Skips where this build has no Hugging Face tokenizers (no cargo)."""
        about = server.info()["tpsim"]
        if not about["real_tokenizer"]:
            self.skipTest("; ".join(about["notes"]))

    def client(self, script, *words, **environment):
        """Standard output of one of this folder's scripts, run by the clients' Python; fails where it does."""
        done = subprocess.run([self.python, os.path.join(HERE, script), *words], capture_output=True, text=True,
                              timeout=300, cwd=self.folder,
                              env={**os.environ, "HF_HUB_OFFLINE": "1", "PYTHONDONTWRITEBYTECODE": "1", **environment})
        self.assertEqual(done.returncode, 0, done.stdout[-4000:] + done.stderr[-4000:])
        return done.stdout

    def path(self, name):
        return os.path.join(self.folder, name)

    def run_of(self, trace, *flags, deployment=DEPLOYMENT):
        """report.json of `tpsim run` of a trace."""
        report = self.path("report")
        subprocess.run([self.program, "run", *deployment, *flags, "--trace", trace, "--report-dir", report, "--quiet"],
                       check=True, capture_output=True, text=True)
        with open(os.path.join(report, "report.json")) as file:
            return json.load(file)

    def far_off(self, reported, said, keys):
        """The keys by which what a client reported is not what the virtual clock says of the same load. Milliseconds."""
        wrong = []
        for key in keys:
            a, b = said[key], reported[key]
            holds = abs(b - a) <= max(0.03 * a, 1.0)
            print(f"{self.id().rsplit('.', 1)[1]}: {key}: run {a:.3f}, client {b:.3f} ({(b / a - 1) * 100:+.2f} %)"
                  f"{'' if holds else ' WRONG'}", flush=True)
            if not holds:
                wrong.append(key)
        return wrong

    def model_folder(self, tokenizer="byte-level", chat=None):
        """A model folder: configuration of Llama 3.1 8B, a small tokenizer, maybe a chat template."""
        folder = self.path("model")
        os.makedirs(folder, exist_ok=True)
        config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 4096,
                  "intermediate_size": 14336, "num_attention_heads": 32, "num_key_value_heads": 8,
                  "num_hidden_layers": 32, "vocab_size": 128256, "max_position_embeddings": 131072, "head_dim": 128,
                  "rms_norm_eps": 1e-5, "rope_theta": 500000.0, "torch_dtype": "bfloat16", "tie_word_embeddings": False,
                  "hidden_act": "silu", "eos_token_id": 1}
        with open(os.path.join(folder, "config.json"), "w") as file:
            json.dump(config, file)
        golden = os.path.join(GOLDEN, "tokenizers")
        with open(os.path.join(golden, tokenizer, "tokenizer.json")) as file, \
                open(os.path.join(folder, "tokenizer.json"), "w") as copy:
            copy.write(file.read())
        with open(os.path.join(folder, "tokenizer_config.json"), "w") as file:
            json.dump({"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<|begin|>", "eos_token": "<|end|>"},
                      file)
        if chat:
            with open(os.path.join(golden, "chats", chat + ".jinja")) as file, \
                    open(os.path.join(folder, "chat_template.jinja"), "w") as copy:
                copy.write(file.read())
        return folder


def main():
    """Arguments: TPSIM CLIENTS [names of tests]; CLIENTS is install_clients.py's folder."""
    ClientTest.program = os.path.abspath(sys.argv[1])
    ClientTest.python = os.path.join(os.path.abspath(sys.argv[2]), "bin", "python")
    if not os.path.exists(os.path.join(sys.argv[2], "stamp")):
        print("the clients are not installed (install_clients.py)")
        sys.exit(77)
    unittest.main(argv=sys.argv[:1] + sys.argv[3:], verbosity=2)
