"""Stand-ins for what SGLang's scheduler touches and the comparison does not need: devices, metrics, sockets, packages
that are not installed."""

import contextlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
import types


class Nothing:
    """Accepts every call and answers with itself; false, zero, empty."""

    def __init__(self, **known):
        self.__dict__.update(known)

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __call__(self, *args, **kwargs):
        return self

    def __enter__(self):
        return self

    def __exit__(self, *args):
        return False

    def __bool__(self):
        return False

    def __int__(self):
        return 0

    def __iter__(self):
        return iter(())

    def _itself(self, other=None):
        return self

    __add__ = __radd__ = __iadd__ = __sub__ = __rsub__ = __mul__ = __mod__ = _itself

    def _no(self, other):
        return False

    __lt__ = __gt__ = __le__ = __ge__ = _no


class NoDevice:
    """The streams and events of torch.cuda where there is one thread and no device."""

    class Stream:
        def __init__(self, *args, **kwargs):
            pass

        def wait_stream(self, other):
            pass

        def wait_event(self, event):
            pass

        def synchronize(self):
            pass

    class Event:
        def __init__(self, *args, **kwargs):
            pass

        def record(self, *args, **kwargs):
            pass

        def synchronize(self):
            pass

        def query(self):
            return True

        def wait(self, *args):
            pass

    @staticmethod
    def current_stream():
        return NoDevice.Stream()

    @staticmethod
    @contextlib.contextmanager
    def stream(stream):
        yield stream


class _MissingType(type):
    """A class whose attributes are such classes, too: enough for what modules do at import."""

    def __getattr__(cls, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return _missing(name)

    def __getitem__(cls, key):
        return cls

    def __or__(cls, other):
        return cls

    __ror__ = __or__

    def __iter__(cls):
        return iter(())


def _missing(name):
    def init(self, *args, **kwargs):
        pass

    def call(self, *args, **kwargs):  # as a decorator, it leaves the function alone
        return args[0] if args and callable(args[0]) else self

    def attribute(self, wanted):
        if wanted.startswith("__"):
            raise AttributeError(wanted)
        return _missing(wanted)()

    return _MissingType(name, (), {"__init__": init, "__call__": call, "__getattr__": attribute,
                                   "__bool__": lambda self: False})


class _MissingModule(types.ModuleType):
    __path__ = []

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        value = _missing(name)
        setattr(self, name, value)
        return value


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def __init__(self, packages):
        self.packages = packages

    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in self.packages:
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec):
        return _MissingModule(spec.name)

    def exec_module(self, module):
        pass


def install(packages):
    """Lets `import` succeed for those of `packages` that are not installed. No code under test calls them."""
    missing = {name for name in packages if importlib.util.find_spec(name) is None}
    sys.meta_path.append(_Finder(missing))
    return missing
