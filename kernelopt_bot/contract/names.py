"""What a candidate's device code may name: every exported function, constant and method, by full dotted name.

The list holds what Inductor's own kernels use (torch 2.11 and 2.13) and what rewrites of them need. Left out on
purpose, each a way to run host code, to hide a store or to wait for ever: inline assembly (`inline_asm_elementwise`,
`triton_helpers.inline_asm_pack`), `extern_elementwise`, `map_elementwise`, printing, pointer types
(`pointer_type`, `block_type`), module attributes (`tl.core`, `tl.standard`, `triton_helpers.warnings`), tensor
descriptors (they need a host allocator) and the grid barrier (it needs a cooperative launch).
"""

from __future__ import annotations

from collections.abc import Mapping

IMPORTS: Mapping[tuple[str, str, str], str] = {
    ("", "triton", "triton"): "triton",
    ("", "triton.language", "tl"): "tl",
    ("triton", "language", "tl"): "tl",
    ("triton.language.extra", "libdevice", "libdevice"): "libdevice",
    ("torch._inductor.runtime", "triton_helpers", "triton_helpers"): "triton_helpers",
    ("torch._inductor.runtime.triton_helpers", "libdevice", "libdevice"): "libdevice",
    ("torch._inductor.runtime.triton_helpers", "math", "tl_math"): "tl_math",
    ("triton.language", "math", "tl_math"): "tl_math",
}
"""(module after `from`, imported name, local name) -> the root of its dotted names. No other import, no other alias."""

ROOTS = frozenset(IMPORTS.values())


def words(root: str, names: str) -> frozenset[str]:
    """`{"tl.load", "tl.store"}` for `words("tl", "load store")`."""
    return frozenset(f"{root}.{name}" for name in names.split())


MEMORY = words("tl", """
    load store atomic_add atomic_and atomic_cas atomic_max atomic_min atomic_or atomic_xchg atomic_xor""")
"""Functions that access memory through their first argument, `pointer`."""

TYPES = words("tl", """
    int1 int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 bfloat16 float32 float64 float8e4nv float8e5""")

_MATH = "abs ceil cos div_rn erf exp exp2 fdiv floor fma log log2 rsqrt sin sqrt sqrt_rn umulhi"

_LANGUAGE = words("tl", _MATH + """
    advance arange argmax argmin associative_scan assume broadcast broadcast_to cast cat cdiv clamp cumprod cumsum
    debug_barrier device_assert dot dot_scaled expand_dims flip full gather histogram interleave join
    make_block_ptr max max_constancy max_contiguous maximum min minimum multiple_of num_programs permute program_id
    rand randint randint4x randn range ravel reduce reduce_or reshape sigmoid softmax sort split static_assert
    static_range sum swizzle2d topk trans view where xor_sum zeros zeros_like""") | MEMORY | TYPES | {
        "tl.PropagateNan.ALL", "tl.PropagateNan.NONE"}

_HELPERS = words("triton_helpers", """
    any bucketize_binary_search constexpr_next_power_of_2 device_assert_then div_floor_integer
    exclusive_scan_decoupled_lookback exclusive_scan_decoupled_lookback_64 exp frexp if_mask is_floating max2
    max_with_index maximum maximum_with_index min2 min_with_index minimum minimum_with_index online_softmax_combine
    online_softmax_reduce pack_value_flag prod promote_to_tensor randint64 remainder_integer select_one
    sort_with_index unpack_flag unpack_value welford welford_combine welford_reduce""")

NEWER = words("triton_helpers", """
    fp8e4m3fn_to_float32 online_softmax_combine_with_sum pow_integer rand4x rand_eager_kernel randn4x""")
"""In torch 2.13 but not in 2.11, where using one is a compile error and so a verdict."""

_LIBDEVICE = words("libdevice", """
    abs acos acosh asin asinh atan atan2 atanh brev cbrt ceil clz copysign cos cosh cospi cyl_bessel_i0 cyl_bessel_i1
    add_rd add_rn add_ru add_rz div_rd div_rn div_ru div_rz erf erfc erfcinv erfcx erfinv exp exp10 exp2 expm1
    fast_cosf fast_dividef fast_exp10f fast_expf fast_log10f fast_log2f fast_logf fast_powf fast_sinf fast_tanf
    fast_tanhf fdim ffs finitef float_as_int float_as_uint floor fma fma_rd fma_rn fma_ru fma_rz fmod hypot ilogb
    int_as_float isfinited isinf isnan j0 j1 jn ldexp lgamma llrint llround log log10 log1p log2 logb mul24 mul_rd
    mul_rn mul_ru mul_rz mulhi nearbyint nextafter norm3d norm4d normcdf normcdfinv popc pow rcbrt rcp_rd rcp_rn
    rcp_ru rcp_rz remainder rhypot rint round rsqrt rsqrt_rn saturatef scalbn signbit sin sinh sinpi sqrt sqrt_rd
    sqrt_rn sqrt_ru sqrt_rz sub_rd sub_rn sub_ru sub_rz tan tanh tgamma trunc uint_as_float y0 y1 yn""")

EXPORTED = _LANGUAGE | _HELPERS | NEWER | _LIBDEVICE | words("tl.math", _MATH) | words("tl_math", _MATH) | {
    "triton.language.div_rn"}
"""Every dotted name that device code may use; the last one is Inductor's own spelling."""

BUILTINS = frozenset({"abs", "float", "int", "max", "min", "range"})
"""Python's own, as far as Triton gives them a meaning in device code."""

METHODS = frozenset({"broadcast_to", "expand_dims", "max", "min", "permute", "reshape", "sum", "to", "trans"})
"""Methods of tensors."""

PROPERTIES = frozenset({"dtype", "element_ty", "shape"})
"""Compile-time properties of tensors and types; `flow.py` refuses the type of a pointer."""

APPROXIMATE = frozenset(name for name in _LIBDEVICE if name.startswith("libdevice.fast_")) | {
    "tl.fdiv", "tl.math.fdiv", "tl_math.fdiv"}
"""Named approximations: gate 1 flags them where the baseline has none."""

FORBIDDEN_KEYWORDS = frozenset({"is_pure", "pack", "asm"})
"""Keyword arguments of inline assembly, refused wherever they appear."""
