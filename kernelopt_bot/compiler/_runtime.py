"""The artifact's runtime under one name. `bundle.runtime_text` joins the same modules into the one file that every
artifact of a release holds; it is also the rest of the package's only implementation of canonical hashing, plan
rendering and substitution, so that what is verified is what is shipped. torch is imported inside functions."""

from kernelopt_bot.compiler.shipped.artifact import Artifact
from kernelopt_bot.compiler.shipped.backend import Backend, GraphRecord, torch_supported
from kernelopt_bot.compiler.shipped.errors import ArtifactError, ArtifactWarning, PlanError
from kernelopt_bot.compiler.shipped.expressions import LARGEST_INTEGER, evaluate
from kernelopt_bot.compiler.shipped.kernels import KernelSource, kernel_hash, read_kernel
from kernelopt_bot.compiler.shipped.manifest import Manifest, load_manifest
from kernelopt_bot.compiler.shipped.rendering import (
    POINTER_TYPES,
    RenderedLaunch,
    ScratchBuffer,
    render,
    render_scratch,
)
from kernelopt_bot.compiler.shipped.runs import Slot, consecutive, inside_and_dying, run_hash, run_slots
from kernelopt_bot.compiler.shipped.substitution import Run, Substitution, substitute
from kernelopt_bot.compiler.shipped.vendor import VendorCall, call_sequence
from kernelopt_bot.compiler.shipped.wrapper import Binding, Call, Scope, Statement, Wrapper, find_runs, read_wrapper

__all__ = [
    "LARGEST_INTEGER", "POINTER_TYPES", "Artifact", "ArtifactError", "ArtifactWarning", "Backend", "Binding",
    "Call", "GraphRecord", "KernelSource", "Manifest", "PlanError", "RenderedLaunch", "Run", "Scope",
    "ScratchBuffer", "Slot", "Statement", "Substitution", "VendorCall", "Wrapper", "call_sequence", "consecutive",
    "evaluate", "find_runs", "inside_and_dying", "kernel_hash", "load_manifest", "read_kernel", "read_wrapper",
    "render", "render_scratch", "run_hash", "run_slots", "substitute", "torch_supported",
]
