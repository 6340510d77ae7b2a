#!/usr/bin/env python3
"""Records the flags of the installed sglang package's server, for tests/unit/launch/cli/sglang_flags_test.cc.

Usage: record_server_args.py > tests/golden/sglang/server_args_VERSION.txt
"""

import argparse

import sglang
from sglang.srt.server_args import ServerArgs

VALUES = {"0": "none", "1": "one", "+": "many", "*": "many", "?": "one_or_none"}


def values_of(action):
    """How many values an option takes. SGLang's own actions for deprecated flags do not set nargs."""
    kind = type(action).__name__
    if "Store" in kind and ("True" in kind or "False" in kind or "Const" in kind) or "Boolean" in kind:
        return "none"
    return VALUES[str(action.nargs or 1)]


def main():
    parser = argparse.ArgumentParser(add_help=False)
    ServerArgs.add_cli_args(parser)
    print(f"# Flags of SGLang {sglang.__version__} with how many values each takes; recorded by "
          "tests/references/record_server_args.py.")
    flags = {name[2:]: values_of(action) for action in parser._actions for name in action.option_strings}
    for name, values in sorted(flags.items()):
        print(name, values)


if __name__ == "__main__":
    main()
