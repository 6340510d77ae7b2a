#!/usr/bin/env python3
"""Installs SGLang and what its parser and checks import into a virtual environment, once: torch among it, 4 GB.

Usage: install_sglang.py FOLDER     FOLDER: made anew where sglang_requirements.txt or this file have changed since

Exit status 77 (ctest: skipped) where there is no network.
"""

import os
import subprocess
import sys

from install_clients import HERE, once

SGLANG = "sglang==0.5.23"


def install(folder):
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    pip = [os.path.join(folder, "bin/python"), "-m", "pip", "--quiet", "--disable-pip-version-check", "install"]
    subprocess.run([*pip, "-r", os.path.join(HERE, "sglang_requirements.txt")], check=True)
    # Without its own needs: kernels, which no check runs.
    subprocess.run([*pip, "--no-deps", "--only-binary", ":all:", SGLANG], check=True)


if __name__ == "__main__":
    once(install, ("sglang_requirements.txt", "install_sglang.py"))
