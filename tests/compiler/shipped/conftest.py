from __future__ import annotations

import warnings

# torch warns of its own deprecations while these load
with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    import torch._inductor.compile_fx
    import torch._inductor.fx_passes.joint_graph  # noqa: F401
