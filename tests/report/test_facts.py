from __future__ import annotations

from dataclasses import replace

from kernelopt_bot.report.facts import replaced_names
from kernelopt_bot.search.result import TargetResult


def test_a_candidate_names_the_kernels_it_replaces(full: TargetResult) -> None:
    assert [replaced_names(full, t) for t in full.trials[:2]] == [("triton_per_fused_native_layer_norm_0",), ()]


def test_a_candidate_for_a_pretended_gpu_replaces_no_step_of_the_cpu_s_program(full: TargetResult) -> None:
    assert full.program is not None
    on_cpu = replace(full, program=replace(full.program, lane="cpu"))
    assert replaced_names(on_cpu, full.trials[0]) == ()
