#!/usr/bin/env python3
"""Installs the clients of requirements.txt from the registries into a virtual environment, once.

Usage: install_clients.py FOLDER     FOLDER: made anew where requirements.txt or this file have changed since

Exit status 77 (ctest: skipped) where there is no network.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
# Without their own needs: those are torch, CUDA and a hundred others.
SGLANG = "sglang==0.5.12"
VLLM = "0.22.1"
# What vLLM's setup.py asks torch for, to see that there is no GPU.
TORCH = {"torch/__init__.py": "class version:\n    cuda = hip = xpu = None\n\n\n__version__ = '0'\n",
         "torch/utils/__init__.py": "", "torch/utils/cpp_extension.py": "CUDA_HOME = ROCM_HOME = None\n"}


def stamp(files):
    digest = hashlib.sha256()
    for name in files:
        with open(os.path.join(HERE, name), "rb") as file:
            digest.update(file.read())
    return digest.hexdigest()


def install(folder):
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    pip = [os.path.join(folder, "bin/python"), "-m", "pip", "--quiet", "--disable-pip-version-check", "install"]
    subprocess.run([*pip, "-r", os.path.join(HERE, "requirements.txt")], check=True)
    subprocess.run([*pip, "--no-deps", "--only-binary", ":all:", SGLANG], check=True)
    with tempfile.TemporaryDirectory() as torch:
        for name, text in TORCH.items():
            os.makedirs(os.path.dirname(os.path.join(torch, name)), exist_ok=True)
            with open(os.path.join(torch, name), "w") as file:
                file.write(text)
        environment = {**os.environ, "PYTHONPATH": torch, "VLLM_TARGET_DEVICE": "empty",
                       "VLLM_VERSION_OVERRIDE": VLLM,
                       "PATH": os.path.join(folder, "bin") + os.pathsep + os.environ["PATH"]}
        subprocess.run([*pip, "--no-deps", "--no-build-isolation", "--no-binary", "vllm", f"vllm=={VLLM}"], check=True,
                       env=environment)


def once(install, files):
    """Calls `install` with the folder that the command line names, where that is not of these `files` of HERE."""
    folder = os.path.abspath(sys.argv[1])
    mark = os.path.join(folder, "stamp")
    if os.path.exists(mark):
        with open(mark) as file:
            if file.read() == stamp(files):
                return
    shutil.rmtree(folder, ignore_errors=True)
    try:
        install(folder)
    except subprocess.CalledProcessError as error:
        print(f"could not be installed: {error}")
        sys.exit(77)
    with open(mark, "w") as file:
        file.write(stamp(files))


if __name__ == "__main__":
    once(install, ("requirements.txt", "install_clients.py"))
