"""First in the path of a node's processes: the node then has the GPUs that STAND_IN_GPUS names, on host memory.

STAND_IN_GPUS: targets with commas, such as `sm_90a,sm_90a`. STAND_IN_HOST: a name for the node. What the GPU's process
calls is in cluster_device.py.
"""

import importlib.abc
import importlib.machinery
import os
import sys


class _Patched(importlib.abc.Loader):
    def __init__(self, loader, patch):
        self.loader, self.patch = loader, patch

    def create_module(self, spec):
        return self.loader.create_module(spec)

    def exec_module(self, module):
        self.loader.exec_module(module)
        self.patch(module)

    def __getattr__(self, name):
        return getattr(self.loader, name)


def _gpus(module):
    """The GPUs of the node, or those of them that Ray gave to this process."""

    def gpus():
        targets = os.environ["STAND_IN_GPUS"].split(",")
        seen = os.environ.get("CUDA_VISIBLE_DEVICES", ",".join(map(str, range(len(targets)))))
        host = os.environ["STAND_IN_HOST"]
        numbers = [int(n) for n in seen.split(",") if n]
        return tuple(module.Gpu(str(n), "Stand-in", f"GPU-{host}-{n}", targets[n], 1 << 30) for n in numbers)

    gpus.cache_clear = lambda: None
    module.gpus = gpus
    module.gpu_visible = lambda: True


def _child(module):
    device = module.Device.__init__

    def begin_on_host(self, gpu, prefix=(), variables=None, begin="cluster_device:begin", option="--ptx-limit"):
        device(self, gpu, prefix, variables, begin, option)

    module.Device.__init__ = begin_on_host


PATCHES = {"ptxdiff.processes.gpus": _gpus, "ptxdiff.processes.child": _child}


class _Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name not in PATCHES:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        if spec is not None:
            spec.loader = _Patched(spec.loader, PATCHES[name])
        return spec


if os.environ.get("STAND_IN_GPUS"):
    sys.meta_path.insert(0, _Finder())
