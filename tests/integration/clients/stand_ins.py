"""Runs the serving benchmarks of SGLang and vLLM as they are, without torch and a GPU: of their packages only the
modules that speak HTTP and keep the time are imported, and every other module of the package is a stand-in whose names
are empty classes. A benchmark that would use one of them fails; a client of a server does not.
"""

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
import types


class _StandIn(types.ModuleType):
    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        made = type(name, (), {})
        setattr(self, name, made)
        return made


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def __init__(self, package, real):
        self.package = package
        self.real = real
        self.folder = importlib.util.find_spec(package).submodule_search_locations

    def find_spec(self, name, path=None, target=None):
        if name != self.package and not name.startswith(self.package + "."):
            return None
        if any(name == real or name.startswith(real + ".") for real in self.real):
            return None  # the ordinary way
        spec = importlib.machinery.ModuleSpec(name, self, is_package=True)
        if any(real.startswith(name + ".") for real in self.real):
            # A package on the way to a real module: found in its folder, but its __init__ is left out.
            spec.submodule_search_locations = (
                self.folder if path is None else [f"{folder}/{name.rsplit('.', 1)[1]}" for folder in path])
        return spec

    def create_module(self, spec):
        return _StandIn(spec.name)

    def exec_module(self, module):
        pass


def nothing(name):
    """A module that a benchmark imports and no load of ours uses."""
    sys.modules.setdefault(name, _StandIn(name))


def only(package, real, **given):
    """Of `package` imports the modules named in `real` only; `given`: names of stand-ins by their modules, with
    two underscores for a dot."""
    sys.meta_path.insert(0, _Finder(package, real))
    for module, names in given.items():
        stand_in = importlib.import_module(module.replace("__", "."))
        for name, value in names.items():
            setattr(stand_in, name, value)
